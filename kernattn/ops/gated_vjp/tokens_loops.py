"""Cotangents of the general rule, token by token: S_t = diag(e^g) S + b r^T + k v^T with r = S^T a, out = S_t^T q.

States at the starts of groups of tokens are kept; a group's own are made again, and lie in cache.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, copy, whole, window
from kernattn.ops._numba.tiles.rows import as_read, given_rows, wide_rows
from kernattn.ops.gated.loops import (
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    STATE,
    K,
    as_loops_see,
    inverse_norm,
    load_rows,
    load_state,
    row_of,
)
from kernattn.ops.gated.tokens_loops import advance, load_token, token_for
from kernattn.ops.gated_vjp.rows_loops import load_cotangent
from kernattn.ops.step.sums_loops import read

GROUP = 16  # tokens


class Found(NamedTuple):
    """Where cotangents are written: of queries a head of out, of all else a head of the state. All are rows."""

    q: Any
    k: Any
    v: Any
    logs: Any
    read: Any
    write: Any
    state: Any


class Back(NamedTuple):
    """Cotangents of one token's rows."""

    query: Any  # (d,)
    key: Any  # (d,)
    reader: Any  # (d,)
    writer: Any  # (d,)
    decay: Any  # (d,)
    value: Any  # (e,)
    known: Any  # (e,), of what was read
    out: Any  # (e,)
    spare: Any  # (d,)


@inner
def _back_for(d, e, like):
    return Back(
        aligned(d, like), aligned(d, like), aligned(d, like), aligned(d, like), aligned(d, like), aligned(e, like),
        aligned(e, like), aligned(e, like), aligned(d, like),
    )  # fmt: skip


@inner
def _dot(x, y):
    total = x.dtype.type(0)
    for c in range(x.size):
        total += x[c] * y[c]
    return total


@inner
def _pull_query(state, query, d, e, back, g_state):
    """Add what a reading of a state asks of it, and write the cotangent of what reads."""
    for a in range(d):
        x, y = window(state, a * e, e), window(g_state, a * e, e)
        back.query[a] = _dot(x, back.out)
        factor = query[a]
        for c in range(e):
            y[c] += factor * back.out[c]


@inner
def _pull_token(before, d, e, token, back, g_state):
    """Take the cotangent of the state to before the token."""
    back.value[:] = 0
    back.known[:] = 0
    read(g_state, token.key, back.value)
    read(g_state, token.writer, back.known)
    for a in range(d):
        x, y = window(before, a * e, e), window(g_state, a * e, e)
        factor, reads = token.decay[a], token.reader[a]
        back.key[a] = _dot(y, token.value)
        back.writer[a] = _dot(y, token.known)
        back.decay[a] = factor * _dot(y, x) if factor != 0 else factor
        back.reader[a] = _dot(x, back.known)
        for c in range(e):
            y[c] = (factor * y[c] if factor != 0 else factor) + reads * back.known[c]


@inner
def _write(row, there, target, at):
    """Write the cotangent of a row, 0 where there is no key."""
    floats, bits, kind = target
    if not there:
        row[:] = 0
    if kind == 0:
        copy(row, 0, row.size, floats, at)
    else:
        narrow(row, 0, row.size, bits, kind, at)


@inner
def _of_direction(row, unit, x, at, spare):
    """Turn the cotangent of a normalised row into that of what it was, row `at` of x."""
    raw, first = wide_rows(x, at, row.size, spare)
    factor, along = inverse_norm(window(raw, first, row.size)), _dot(unit, row)
    for c in range(row.size):
        row[c] = factor * (row[c] - unit[c] * along)


@phase
def _walk(given, own, first, count, states, sizes, token):
    """Write the states after tokens first to first + count of a group, behind that before them."""
    n, d, e, _, _ = sizes
    area = d * e
    token.query[:] = 0
    for i in range(count):
        t = first + i
        beta, gone = load_token(given, own, t, sizes, token)
        begins = given.fresh.size > 0 and given.fresh[own[MASK] * n + t]
        old, new = window(states, i * area, area), window(states, (i + 1) * area, area)
        advance(given, old, new, beta, gone, begins, d, e, token)


@compiled
def pull_tokens(sizes, given, q, before, g_out, g_after, table, reads, scale, found, low, high):
    """Take states low to high back through all tokens."""
    given, q, before, g_out, g_after = as_loops_see(given), as_read(q), whole(before), as_read(g_out), whole(g_after)
    n, d, e, channels, _ = sizes
    area, token, back = d * e, token_for(d, e, before), _back_for(d, e, before)
    groups, heard = (n + GROUP - 1) // GROUP, np.zeros(1, np.bool_)
    kept, states = aligned(groups * area, before), aligned((GROUP + 1) * area, before)
    g_state = aligned(area, before)
    for head in range(low, high):
        own = table[head]
        token.lost[:] = 0
        load_state(before, own[STATE], d, e, e, states)
        for group in range(groups):
            copy(states, 0, area, kept, group * area)
            count = min(GROUP, n - group * GROUP)
            if group + 1 < groups:
                _walk(given, own, group * GROUP, count, states, sizes, token)
                copy(states, count * area, area, states, 0)
        load_state(g_after, head if g_after.size > 0 else -1, d, e, e, g_state)
        for step in range(groups):
            first = (groups - 1 - step) * GROUP
            count = min(GROUP, n - first)
            copy(kept, first // GROUP * area, area, states, 0)
            _walk(given, own, first, count, states, sizes, token)
            for back_token in range(count):
                i = count - 1 - back_token
                t = first + i
                mask_at, at = own[MASK] * n + t, head * n + t
                there = given.mask.size == 0 or given.mask[mask_at]
                begins = given.fresh.size > 0 and given.fresh[mask_at]
                old, new = window(states, i * area, area), window(states, (i + 1) * area, area)
                for reader in range(reads.shape[1]):
                    at_q = reads[head, reader, QUERY] + t * reads[head, reader, QUERY_STEP]
                    at_out = reads[head, reader, OUT] * n + t
                    heard[0] = load_cotangent(g_out, at_out * e, e, scale, back.out, 0)
                    load_rows(q, at_q, d, 1, d, heard, 0, given.normalise, token.query, d)
                    _pull_query(new, token.query, d, e, back, g_state)
                    if given.normalise:
                        _of_direction(back.query, token.query, q, at_q, back.spare)
                    _write(back.query, heard[0], found.q, at_out * d)
                load_token(given, own, t, sizes, token)
                token.known[:] = 0
                if not begins:
                    read(old, token.reader, token.known)
                _pull_token(old, d, e, token, back, g_state)
                if given.normalise:
                    _of_direction(back.key, token.key, given.k, row_of(own, K, t), back.spare)
                _write(back.key, there, found.k, at * d)
                _write(back.value, there, found.v, at * e)
                _write(back.reader, there and not begins, found.read, at * d)
                _write(back.writer, there, found.write, at * d)
                if given_rows(found.logs):
                    if channels == 1:
                        for c in range(1, d):
                            back.decay[0] += back.decay[c]
                    _write(window(back.decay, 0, channels), there and not begins, found.logs, at * channels)
        if given_rows(found.state):
            copy(g_state, 0, area, found.state[0], head * area)
