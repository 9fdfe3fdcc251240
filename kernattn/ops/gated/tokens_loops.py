"""Gated linear attention, token by token: a step, and the general rule with a pair of rows."""

from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, numbers_at, pad, window
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.rows import fetch_rows, given_rows, read_row, rows_at
from kernattn.ops.gated.loops import (
    BETA,
    DECAY,
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    READ,
    READ_COLUMNS,
    STATE,
    TABLE_COLUMNS,
    WRITE,
    Given,
    K,
    V,
    load_rows,
    row_of,
    write_row,
)
from kernattn.ops.step.sums_loops import read, renew

SINGLE = 4  # bytes of a float32


class Token(NamedTuple):
    """Rows of one token; made in compiled code."""

    memory: Any  # in which they lie
    query: Any  # (d,)
    key: Any  # (d,)
    reader: Any  # (d,): of the state before the token
    writer: Any  # (d,): where that is added
    decay: Any  # (d,)
    lost: Any  # (d,): logs of what rounding has taken from the decays so far
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
    memory = aligned(8 * row + 3 * column, like)
    after = 8 * row
    token = Token(
        memory, window(memory, 0, d), window(memory, row, d), window(memory, 2 * row, d), window(memory, 3 * row, d),
        window(memory, 4 * row, d), window(memory, 5 * row, d), window(memory, 6 * row, d), window(memory, 7 * row, d),
        window(memory, after, e), window(memory, after + column, e), window(memory, after + 2 * column, e),
    )  # fmt: skip
    token.ones[:] = 1
    return token


@inner
def fade(logs, lost, count, alone):
    """Turn logs of decays into decays, where they lie; each makes up for what rounding took from those before it.

    The same decay near 1 is rounded to the same side at every token: the errors of 2,000 add up to 2e-5.
    """
    one = logs.dtype.type(1)
    if alone or logs.itemsize > SINGLE:
        for c in range(count):
            logs[c] = decayed(logs[c])
        return
    none, near = one - one, -one / 16  # what fades more is forgotten within tens of tokens
    half, third, quarter, fifth = one / 2, one / 3, one / 4, one / 5
    for c in range(count):
        log = logs[c] + lost[c]
        factor = decayed(none if log > none else log)
        x = factor - one
        applied = x * (one - x * (half - x * (third - x * (quarter - x * fifth))))  # log(1 + x)
        lost[c] = log - applied if x > near else none
        logs[c] = factor


@phase
def load_decay(given, own, t, sizes, there, begins, token):
    """Load the decays of a token; return whether one is 0."""
    n, d, _, channels, _ = sizes
    decay, logs = token.decay, there and not begins and given_rows(given.logs)
    if logs and channels > 1:
        read_row(given.logs, row_of(own, DECAY, t), channels, decay, 0)
        fade(decay, token.lost, d, n == 1)
        gone = False
        for c in range(d):
            gone |= decay[c] == 0
        return gone
    factor = decay.dtype.type(0 if begins else 1)
    if logs:
        read_row(given.logs, row_of(own, DECAY, t), 1, decay, 0)
        fade(decay, token.lost, 1, n == 1)
        factor = decay[0]
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
def run_tokens(
    sizes, table, reads, k, v, logs, beta, read_rows, write, mask, fresh, q, before, out, after, kinds, normalise,
    scale, low, high,
):  # fmt: skip
    """Take states low to high through all tokens. sizes: n, d, e, channels of a decay, and readers of a state.

    Arrays are given by the addresses of their objects, 0 where there is none, and all in this order: kinds has those of
    the rows k, v, logs, read_rows, write, q and out, two bits each.
    """
    given = Given(
        rows_at(k, kinds & 3, scale), rows_at(v, kinds >> 2 & 3, scale), rows_at(logs, kinds >> 4 & 3, scale),
        numbers_at(beta, scale), rows_at(read_rows, kinds >> 6 & 3, scale), rows_at(write, kinds >> 8 & 3, scale),
        numbers_at(mask, True), numbers_at(fresh, True), normalise,
    )  # fmt: skip
    q, before = rows_at(q, kinds >> 10 & 3, scale), numbers_at(before, scale)
    out, after = rows_at(out, kinds >> 12 & 3, scale), numbers_at(after, scale)
    sizes, table, reads = numbers_at(sizes, low), numbers_at(table, low), numbers_at(reads, low)
    n, d, e, channels, readers = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    one = before.dtype.type(1)
    token, no_mask = token_for(d, e, before), window(given.mask, 0, 0)
    for head in range(low, high):
        own, looks = window(table, head * TABLE_COLUMNS, TABLE_COLUMNS), head * readers * READ_COLUMNS
        token.lost[:] = 0
        new = window(after, head * d * e, d * e)
        old = new
        if head + 1 < high:
            next_head = window(table, (head + 1) * TABLE_COLUMNS, TABLE_COLUMNS)
            ask_for(given, q, next_head, reads[looks + readers * READ_COLUMNS + QUERY], d, e)
        if own[STATE] < 0:
            new[:] = 0
        else:
            old = window(before, own[STATE] * d * e, d * e)
        for t in range(n):
            beta_t, gone = load_token(given, own, t, (n, d, e, channels, readers), token)
            begins = given.fresh.size > 0 and given.fresh[own[MASK] * n + t]
            for reader in range(readers):
                look = window(reads, looks + reader * READ_COLUMNS, READ_COLUMNS)
                at_q = look[QUERY] + t * look[QUERY_STEP]
                at_out = look[OUT] * n + t
                load_rows(q, at_q, d, 1, d, no_mask, 0, given.normalise, token.query, d)
                query = token.query
                for c in range(d):
                    query[c] *= scale
                if reader == 0:
                    advance(given, old, new, beta_t, gone, begins, d, e, token)
                    old = new
                else:
                    token.total[:] = 0
                    read(new, token.query, token.total)
                write_row(token.total, 0, e, one, out, at_out * e)
