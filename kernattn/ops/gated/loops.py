"""Gated linear attention, chunk by chunk, a state in cache: one decay for all channels of a key, or one for each."""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.halves import finite_bits, narrow, some_nan_bits, widen
from kernattn.ops._numba.codegen.memory import aligned, copy, odd_row, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load, store, where
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.dots import dots
from kernattn.ops._numba.tiles.products import FULL, product, solve
from kernattn.ops._numba.tiles.rows import as_read, given_rows
from kernattn.ops.gated.decays_loops import decay_pairs, fade_keys, load_decays, sum_logs

K, V, DECAY, BETA, READ, WRITE = range(6)
STEPS, MASK, STATE = 6, 12, 13
TABLE_COLUMNS = 14
"""Columns of the table of states: where rows of k, v, the log decays, beta, a and b begin; from STEPS on, how far a row
of each is from the next; heads of the mask, and of the state before, or -1."""

QUERY, OUT, QUERY_STEP = range(3)
READ_COLUMNS = 3
"""Of reads: where rows of q begin, heads of out, and how far a row of q is from the next."""

EPSILON = 1e-6


class Room(NamedTuple):
    """Tiles of a chunk of `size` tokens; made in compiled code, where it costs nothing."""

    keys: Any  # (size, row_d)
    queries: Any  # (size, row_d)
    turned: Any  # (row_d, size): keys or queries as the second factor
    faded: Any  # (size, size, row_d): on the way back, where channels have own decays, keys [i, j] as i sees them
    factors: Any  # (size, row_d): keys or queries times the decay of the state at the start
    between: Any  # (size, size): decays [j, i] of what j wrote, when i has come
    reads: Any  # (size, size): of keys by keys, [j, i], decayed
    scores: Any  # (size, size): of keys by queries
    logs: Any  # (size, channels)
    since: Any  # (size, channels): decays from the start
    total: Any  # (channels,): sums on the way back
    lack: Any  # (channels,): logs of the factors that the state at the start lacks
    strength: Any  # (size,)
    written: Any  # (size, row_e)
    num: Any  # (size, row_e)
    left: Any  # (size, row_e): what is left at the end of what was written
    size: Any
    row_d: Any
    row_e: Any


@inner
def room_of_rows(channels, tokens, row_d, row_e, fades, like):
    """Return room for a chunk of so many tokens, whose rows lie so far apart.

    It has tiles for keys that fade from token to token, or not.
    """
    size = tile_rows(tokens, like)
    wide = size * row_d
    return Room(
        aligned(wide, like), aligned(wide, like), aligned(row_d * size, like),
        aligned(size * wide if fades else 0, like), aligned(wide, like),
        aligned(size * size, like), aligned(size * size, like), aligned(size * size, like),
        aligned(size * channels, like), aligned(size * channels, like),
        aligned(channels, like), aligned(channels, like), aligned(size, like),
        aligned(size * row_e, like), aligned(size * row_e, like), aligned(size * row_e, like), size, row_d, row_e,
    )  # fmt: skip


@inner
def room_for(d, e, channels, tokens, like):
    """Return it with rows of d and e numbers."""
    return room_of_rows(channels, tokens, odd_row(d, like), odd_row(e, like), channels > 1, like)


@inner
def row_of(own, column, t):
    """Return where the row of a token is."""
    return own[column] + t * own[STEPS + column]


@inner
def inverse_norm(x):
    """Return 1 over the norm of a row, whose square need be no float."""
    one, square, peak = x.dtype.type(1), x.dtype.type(EPSILON), x.dtype.type(0)
    for c in range(x.size):
        square += x[c] * x[c]
    if square < np.inf:
        return one / np.sqrt(square)
    for c in range(x.size):
        peak = max(peak, abs(x[c]))
    square = x.dtype.type(0)
    for c in range(x.size):
        square += (x[c] / peak) * (x[c] / peak)
    return one / np.sqrt(square) / peak


@inner
def load_rows(x, at, step, rows, d, mask, mask_at, normalise, tile, row):
    """Load rows (floats, bits, kind), 0 where there is no key, over their norms where that is asked for."""
    floats, bits, kind = x
    for i in range(rows):
        y = window(tile, i * row, d)
        if mask.size > 0 and not mask[mask_at + i]:
            for c in range(d):
                y[c] = 0
            continue
        if kind == 0:
            copy(floats, at + i * step, d, tile, i * row)
        else:
            widen(bits, kind, at + i * step, d, tile, i * row)
        if normalise:
            factor = inverse_norm(y)
            for c in range(d):
                y[c] *= factor


@phase
def load_strength(beta, at, step, rows, mask, mask_at, room):
    """Load beta, 0 where there is no key."""
    for i in range(rows):
        there = mask.size == 0 or mask[mask_at + i]
        room.strength[i] = beta[at + i * step] if there else beta.dtype.type(0)


@phase
def score(of, rows, d, channels, room, into):
    """Write the decayed scores [j, i] of keys j <= i by rows i, and 0 for j > i."""
    size, row = room.size, room.row_d
    if channels == 1:
        score_rows(room.keys, row, of, row, rows, d, room, into)
        return
    for j in range(rows):
        x = window(into, j * size, rows)
        for i in range(j):
            x[i] = 0
        for i in range(j, rows):
            x[i] = dot(of, i * row, room.faded, (i * size + j) * row, d)


@phase
def score_rows(keys, key_row, of, row, rows, d, room, into):
    """Write them where all channels have one decay; rows lie as far apart as is said."""
    size = room.size
    dots(keys, 0, key_row, of, 0, row, d, into, 0, size, rows, rows, True)
    fade(into, 0, rows, room, into)


@inner
def fade(scores, first, rows, room, into):
    """Decay scores; nothing is left of anything where a decay is 0."""
    for at in range(0, rows * room.size, lanes(scores)):
        decay = load(room.between, at)
        store(where(decay == 0, decay, decay * load(scores, first + at)), into, at)


@inner
def dot(a, a_at, b, b_at, d):
    """Return the sum of products of two rows."""
    x, y = window(a, a_at, d), window(b, b_at, d)
    total = a.dtype.type(0)
    for c in range(d):
        total += x[c] * y[c]
    return total


@phase
def read_start(of, rows, d, e, channels, state, room):
    """Write what rows read of the state at the start, decayed, into `num`."""
    row, row_e = room.row_d, room.row_e
    if channels == 1:
        product(of, 0, row, 1, state, 0, row_e, room.num, 0, row_e, rows, e, d, False, FULL)
        for i in range(rows):
            y, factor = window(room.num, i * row_e, e), room.since[i]
            for c in range(e):
                y[c] = y[c] * factor if factor != 0 else factor
        return
    for i in range(rows):
        x, y, since = window(of, i * row, d), window(room.factors, i * row, d), window(room.since, i * d, d)
        for c in range(d):
            y[c] = x[c] * since[c]
    product(room.factors, 0, row, 1, state, 0, row_e, room.num, 0, row_e, rows, e, d, False, FULL)


@phase
def substitute(values, value_row, rows, e, room):
    """Turn values, where they lie, into what a delta rule writes, u_i = beta_i y_i, and what was read into y_i.

    y_i = v_i - what k_i reads of the start and of earlier u_j.
    """
    size, row_e, factors = room.size, room.row_e, room.scores
    for i in range(rows):
        y, known = window(values, i * value_row, e), window(room.num, i * row_e, e)
        strength, x, factor = room.strength[i], window(room.reads, i * size, size), window(factors, i * size, size)
        for c in range(e):
            known[c] = y[c] - known[c]
        for c in range(size):
            factor[c] = strength * x[c]
    solve(factors, 0, 1, size, room.num, 0, row_e, rows, e)
    for i in range(rows):
        y, x, strength = window(room.written, i * row_e, e), window(room.num, i * row_e, e), room.strength[i]
        for c in range(e):
            y[c] = strength * x[c]


class Given(NamedTuple):
    """What a loop reads of keys, flat; the rows of all but beta are (floats, bits, kind)."""

    k: Any
    v: Any
    logs: Any
    beta: Any
    read: Any  # a
    write: Any  # b
    mask: Any
    fresh: Any
    normalise: Any


@inner
def as_loops_see(given):
    """Return arguments as loops see them: arrays that are read and arrays that are written have one type."""
    k, v, logs, beta, read, write, mask, fresh, normalise = given
    return Given(
        as_read(k),
        as_read(v),
        as_read(logs),
        whole(beta),
        as_read(read),
        as_read(write),
        whole(mask),
        whole(fresh),
        normalise,
    )


@inner
def load_state(states, at, d, e, row, state):
    """Load the state of a head, zeros where `at` is below 0."""
    if at < 0:
        state[:] = 0
    else:
        for a in range(d):
            copy(states, (at * d + a) * e, e, state, a * row)


@phase
def open_chunk(given, own, start, rows, sizes, state, room):
    """Load keys, values and decays of a chunk, and write what its tokens write; `state` is its start.

    Where a segment begins, it becomes 0: products with what another one left, NaN it may be, would not.
    """
    n, d, e, channels, _ = sizes
    row_e, mask_at = room.row_e, own[MASK] * n + start
    if given.fresh.size > 0 and given.fresh[mask_at]:
        state[:] = 0
    at_k, at_v, at_logs = row_of(own, K, start), row_of(own, V, start), row_of(own, DECAY, start)
    load_rows(
        given.k, at_k, own[STEPS + K], rows, d, given.mask, mask_at, given.normalise, room.keys, room.row_d
    )  # fmt: skip
    load_rows(given.v, at_v, own[STEPS + V], rows, e, given.mask, mask_at, False, room.written, room.row_e)
    load_decays(given.logs, at_logs, own[STEPS + DECAY], rows, channels, given.mask, mask_at, given.fresh, room)
    sum_logs(rows, channels, room)
    if channels == 1:
        decay_pairs(rows, room)
    else:
        fade_keys(rows, d, room)
    if given.beta.size > 0:
        load_strength(given.beta, row_of(own, BETA, start), own[STEPS + BETA], rows, given.mask, mask_at, room)
        score(room.keys, rows, d, channels, room, room.reads)
        read_start(room.keys, rows, d, e, channels, state, room)
        substitute(room.written, row_e, rows, e, room)


@inner
def _finite_row(rows, at, count):
    floats, bits, kind = rows
    return finite(window(floats, at, count)) if kind == 0 else finite_bits(bits, kind, at, count)


@inner
def begins_anew(given, own, t, sizes):
    """Does a sequence begin at a token, or does it let nothing remain in any channel, as all have one decay?"""
    n, _, _, channels, _ = sizes
    mask_at = own[MASK] * n + t
    if given.fresh.size > 0 and given.fresh[mask_at]:
        return True
    if channels > 1 or not given_rows(given.logs) or (given.mask.size > 0 and not given.mask[mask_at]):
        return False
    at = row_of(own, DECAY, t)
    return not _finite_row(given.logs, at, 1) and not some_nan(given.logs, at, 1)


@inner
def is_finite(given, own, t, sizes):
    """Is a token finite, or not there? Its decays may be 0."""
    n, d, e, channels, _ = sizes
    if given.mask.size > 0 and not given.mask[own[MASK] * n + t]:
        return True
    if given_rows(given.logs) and some_nan(given.logs, row_of(own, DECAY, t), channels):
        return False
    if given.beta.size > 0 and not finite(window(given.beta, row_of(own, BETA, t), 1)):
        return False
    return _finite_row(given.k, row_of(own, K, t), d) and _finite_row(given.v, row_of(own, V, t), e)


@inner
def rows_of_one_chunk(given, own, start, rows, sizes):
    """Return how many rows come before a state begins anew, or before a token that is not finite.

    Products of a chunk have zeros where a token does not see another, and zero times NaN is NaN.
    """
    for i in range(1, rows):
        if begins_anew(given, own, start + i, sizes) or not is_finite(given, own, start + i, sizes):
            return i
    return rows


@inner
def some_nan(rows, at, count):
    """Is any number of a row none?"""
    floats, bits, kind = rows
    if kind != 0:
        return some_nan_bits(bits, kind, at, count)
    x, total = window(floats, at, count), floats.dtype.type(0)
    for c in range(x.size):
        total += x.dtype.type(1) if x[c] != x[c] else x.dtype.type(0)
    return total > 0


@inner
def write_row(num, at, e, scale, out, to):
    """Write a row of outputs times the scale; a row of 16 bits by way of itself."""
    floats, bits, kind = out
    x = window(num, at, e)
    if kind == 0:
        y = window(floats, to, e)
        for c in range(e):
            y[c] = scale * x[c]
    else:
        for c in range(e):
            x[c] *= scale
        narrow(num, at, e, bits, kind, to)
