"""Gated linear attention, token by token: a step, and the general rule with a pair of rows."""

from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.rows import as_read, fetch_rows, given_rows, read_row
from kernattn.ops.gated.loops import (
    BETA,
    DECAY,
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    READ,
    STATE,
    WRITE,
    K,
    V,
    as_loops_see,
    load_rows,
    row_of,
    write_row,
)
from kernattn.ops.step.sums_loops import read, renew


class Token(NamedTuple):
    """Rows of one token; made in compiled code."""

    memory: Any  # in which they lie
    query: Any  # (d,)
    key: Any  # (d,)
    reader: Any  # (d,): of the state before the token
    writer: Any  # (d,): where that is added
    decay: Any  # (d,)
    ones: Any  # (d,)
    zeros: Any  # (d,)
    value: Any  # (e,)
    known: Any  # (e,): what was read
    total: Any  # (e,)


@inner
def token_for(d, e, like):
    """Return room for a token."""
    unit = LINE // like.itemsize
    row, column = pad(d, unit), pad(e, unit)  # so that each row begins at a line
    memory = aligned(7 * row + 3 * column, like)
    after = 7 * row
    token = Token(
        memory, window(memory, 0, d), window(memory, row, d), window(memory, 2 * row, d), window(memory, 3 * row, d),
        window(memory, 4 * row, d), window(memory, 5 * row, d), window(memory, 6 * row, d), window(memory, after, e),
        window(memory, after + column, e), window(memory, after + 2 * column, e),
    )  # fmt: skip
    token.ones[:] = 1
    return token


@phase
def load_decay(given, own, t, sizes, there, begins, token):
    """Load the decays of a token; return whether one is 0."""
    _, d, _, channels, _ = sizes
    decay, logs = token.decay, there and not begins and given_rows(given.logs)
    if logs and channels > 1:
        read_row(given.logs, row_of(own, DECAY, t), channels, decay, 0)
        gone = False
        for c in range(d):
            decay[c] = decayed(decay[c])
            gone |= decay[c] == 0
        return gone
    factor = decay.dtype.type(0 if begins else 1)
    if logs:
        read_row(given.logs, row_of(own, DECAY, t), 1, decay, 0)
        factor = decayed(decay[0])
    for c in range(d):
        decay[c] = factor
    return factor == 0


@phase
def load_token(given, own, t, sizes, token):
    """Load key, value, decays and what reads; return beta, and whether a decay is 0."""
    n, d, e, _, _ = sizes
    mask_at, beta = own[MASK] * n + t, token.key.dtype.type(0)
    there = given.mask.size == 0 or given.mask[mask_at]
    begins = given.fresh.size > 0 and given.fresh[mask_at]
    load_rows(given.k, row_of(own, K, t), d, 1, d, given.mask, mask_at, given.normalise, token.key, d)
    load_rows(given.v, row_of(own, V, t), e, 1, e, given.mask, mask_at, False, token.value, e)
    gone = load_decay(given, own, t, sizes, there, begins, token)
    if given.beta.size > 0:
        if there:
            beta = given.beta[row_of(own, BETA, t)]
        key, decay, reader = token.key, token.decay, token.reader
        for c in range(d):
            reader[c] = decay[c] * key[c]
    if given_rows(given.read):
        load_rows(given.read, row_of(own, READ, t), d, 1, d, given.mask, mask_at, False, token.reader, d)
        load_rows(given.write, row_of(own, WRITE, t), d, 1, d, given.mask, mask_at, False, token.writer, d)
        if begins:
            token.reader[:] = 0
    return beta, gone


@inner
def forget(old, new, d, e, decay):
    """Copy a state, without the rows of which nothing is left: they may be anything."""
    for a in range(d):
        y = window(new, a * e, e)
        if decay[a] == 0:
            y[:] = 0
        else:
            x = window(old, a * e, e)
            for c in range(e):
                y[c] = x[c]


@phase
def read_before(old, begins, token):
    """Read the state before a token, of which a sequence that begins sees nothing."""
    token.known[:] = 0
    if not begins:
        read(old, token.reader, token.known)


@phase
def advance(given, old, new, beta, gone, begins, d, e, token):
    """Write the state after a token, and what its query reads of it into `total`."""
    token.total[:] = 0
    general = given_rows(given.read)  # rows that read the state, and others that write what they read
    if general:
        read_before(old, begins, token)
    if gone:
        forget(old, new, d, e, token.decay)
        old = new
    if general:
        renew(old, new, token.decay, token.writer, token.zeros, token.known, token.total)
        token.total[:] = 0
        renew(new, new, token.ones, token.key, token.query, token.value, token.total)
        return
    if given.beta.size > 0:
        token.known[:] = 0
        read(old, token.reader, token.known)
        value, known = token.value, token.known
        for c in range(e):
            value[c] = beta * (value[c] - known[c])
    renew(old, new, token.decay, token.key, token.query, token.value, token.total)


@phase
def ask_for(given, q, own, at_q, d, e):
    """Ask for the first rows of a head, which comes next."""
    fetch_rows(given.k, row_of(own, K, 0), d)
    fetch_rows(given.v, row_of(own, V, 0), e)
    fetch_rows(q, at_q, d)


@compiled
def run_tokens(sizes, given, q, before, table, reads, scale, out, after, low, high):
    """Take states low to high through all tokens. sizes: n, d, e, channels of a decay, and one that is not read."""
    given, q, before, out, after = as_loops_see(given), as_read(q), whole(before), as_read(out), whole(after)
    n, d, e, _, _ = sizes
    one = before.dtype.type(1)
    token, no_mask = token_for(d, e, before), window(given.mask, 0, 0)
    for head in range(low, high):
        own = table[head]
        new = window(after, head * d * e, d * e)
        old = new
        if head + 1 < high:
            ask_for(given, q, table[head + 1], reads[head + 1, 0, QUERY], d, e)
        if own[STATE] < 0:
            new[:] = 0
        else:
            old = window(before, own[STATE] * d * e, d * e)
        for t in range(n):
            beta, gone = load_token(given, own, t, sizes, token)
            begins = given.fresh.size > 0 and given.fresh[own[MASK] * n + t]
            for reader in range(reads.shape[1]):
                at_q = reads[head, reader, QUERY] + t * reads[head, reader, QUERY_STEP]
                at_out = reads[head, reader, OUT] * n + t
                load_rows(q, at_q, d, 1, d, no_mask, 0, given.normalise, token.query, d)
                query = token.query
                for c in range(d):
                    query[c] *= scale
                if reader == 0:
                    advance(given, old, new, beta, gone, begins, d, e, token)
                    old = new
                else:
                    token.total[:] = 0
                    read(new, token.query, token.total)
                write_row(token.total, 0, e, one, out, at_out * e)
