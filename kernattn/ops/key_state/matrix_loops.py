"""The recurrence of linear attention with its products on the matrix unit; features, units and normalisers are floats'.

The unit takes projections too, where a map has a log scale for each feature.

No feature is negative: sums of both signs cancel, and so would the digits that two parts keep.

Sums and what queries read of them stand columns by features and columns by queries, so that every operand is packed as
it lies. What tiles cannot hold is told to the caller: the rows that see such a key or its value, and queries that meet
so little that its digits are lost. So no row's bits depend on another row.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import weight
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, whole, window
from kernattn.ops._numba.far.clamped import within
from kernattn.ops._numba.far.lifted_keys import USUAL, rise_of
from kernattn.ops._numba.far.negligible import negligible_size, raise_queries
from kernattn.ops._numba.matrix.instructions import configure, release, unit_room
from kernattn.ops._numba.matrix.linear import FAINT, FAR_VALUES, far_sums, pack_queries, round_queries
from kernattn.ops._numba.matrix.parts import FAR, all_near, is_far, pack_pairs, pack_row, round_rows
from kernattn.ops._numba.matrix.products import BLOCK, multiply
from kernattn.ops._numba.matrix.projections import project, projector_for
from kernattn.ops._numba.tiles.chunk import column_sums, query_features
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.outputs import normalisers, write_rows
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, wide_rows
from kernattn.ops._numba.tiles.sums import Sums, clear, load_sums, store_sums
from kernattn.ops.key_state.loops import (
    BEFORE,
    END,
    FIRST,
    MASK,
    OUT,
    QUERY,
    K,
    V,
    count_rows_of_sequence,
    key_features,
    room_for,
)


class Turned(NamedTuple):
    """Operands of a chunk, and sums; made in compiled code, where it costs nothing. M, e and C are whole blocks."""

    unit: Any
    sums: Any  # (e, M), of features times values
    factors: Any  # (M,), by which sums change
    sum_rows: Any  # (2, e, M), the sums in parts
    key_rows: Any  # (parts, C, M)
    key_pairs: Any  # (parts, C / 2, M)
    query_pairs: Any  # (parts, M / 2, C)
    product_pairs: Any  # (2, C / 2, C)
    value_rows: Any  # (parts, e, C)
    values: Any  # (C, e), as floats; zeros for what is masked or far
    turned: Any  # (e, C), the same; then what queries read
    before: Any  # (C,), units of queries before any was raised
    features: Any
    columns: Any
    size: Any


@inner
def _turned(features, e, chunk, given, made, like, words, halves):
    """Return room for chunks of so many tokens."""
    m, columns, size = pad(features, BLOCK), pad(e, BLOCK), pad(chunk, BLOCK)
    return Turned(
        unit_room(), aligned(columns * m, like), aligned(m, like), aligned(2 * columns * m, halves),
        aligned(made * size * m, halves), aligned(made * size // 2 * m, words), aligned(made * m // 2 * size, words),
        aligned(2 * size // 2 * size, words), aligned(given * columns * size, halves), aligned(size * e, like),
        aligned(columns * size, like), aligned(size, like), m, columns, size,
    )  # fmt: skip


@inner
def _rescale(sums, s, units, least):
    """Bring the sums to other units, as `sums.rescale` does, where they stand columns by features."""
    zero, one, changed = sums.z.dtype.type(0), sums.tops == 1, False
    factors = s.factors
    for top in range(sums.tops):
        old, new = sums.units[top], units[top]
        factor = weight(zero, old, new) if old != new else sums.z.dtype.type(1)
        changed = changed or old != new
        for a in range(0 if one else top, sums.features if one else top + 1):
            factors[a] = zero if old != new and sums.z[a] * factor < least else factor
            sums.z[a] *= factors[a]
        sums.units[top] = new
    if changed:
        for c in range(sums.e):
            x = window(s.sums, c * s.features, sums.features)
            for a in range(sums.features):
                x[a] *= factors[a]


@inner
def _first_far(s, k, from_k, dim, v, from_v, e, rows, mask, mask_at, given, given_at):
    """Write values to the room of values, and return the first row whose key or value is far, `rows` if none is."""
    zero, first = v.dtype.type(0), rows
    near = given.size == 0 and all_near(v, from_v, rows * e, v.dtype.type(FAINT), v.dtype.type(FAR_VALUES / e))
    near = near and all_near(k, from_k, rows * dim, zero, k.dtype.type(FAR))
    if near:
        copy(v, from_v, rows * e, s.values, 0)
    for j in range(0 if not near or mask.size > 0 else rows, rows):
        if near:
            if not mask[mask_at + j]:
                window(s.values, j * e, e)[:] = zero
            continue
        y, seen = window(s.values, j * e, e), mask.size == 0 or mask[mask_at + j]
        x = window(v, from_v + j * e, e)
        far = seen and not (within(x, v.dtype.type(1 / FAR_VALUES)) and not is_far(x, v.dtype.type(FAINT), np.inf))
        if far or not seen:
            for c in range(e):
                y[c] = zero
        else:
            copy(x, 0, e, y, 0)
        if seen and not far:
            far = is_far(window(k, from_k + j * dim, dim), zero, k.dtype.type(FAR))
            far = far or (given.size > 0 and not given[given_at + j] < np.inf)
        if far and first == rows:
            first = j
    for i in range(rows * e, pad(rows, BLOCK) * e):
        s.values[i] = zero
    return first


@phase
def _pack_chunk(s, keys, row_k, features, e, rows, given, made):
    """Pack keys by rows and by pairs, and values turned; rows up to a whole block are zeros."""
    depth = pad(rows, BLOCK)
    for j in range(rows, depth):
        x = window(keys, j * row_k, row_k)
        for a in range(row_k):
            x[a] = 0
    for j in range(depth):
        pack_row(keys, j * row_k, features, s.key_rows, j * s.features, s.size * s.features, made)
    pack_pairs(
        keys, row_k, depth, min(row_k, s.features), s.key_pairs, s.features, s.size // 2 * s.features, made
    )  # fmt: skip
    transpose(s.values, 0, e, depth, e, s.turned, 0, s.size)
    for c in range(e):
        pack_row(s.turned, c * s.size, depth, s.value_rows, c * s.size, s.columns * s.size, given)


@inner
def _cut_future(products, rows, size, inside):
    """Put zeros where j > i, and set `inside` to the sums of the columns."""
    for i in range(rows):
        inside[i] = 0
    for j in range(rows):
        x = window(products, j * size, rows)
        for i in range(j):
            x[i] = 0
        y, total = window(products, j * size + j, rows - j), window(inside, j, rows - j)
        for i in range(rows - j):
            total[i] += y[i]


@phase
def _weigh(s, chunk, products, rows, features, z, all_seen, positive, made):
    """Write products of keys and queries, for j <= i or for all; add up normalisers, and raise what is too low."""
    keys, queries, row, size = chunk.keys, chunk.queries, chunk.row_k, chunk.size
    depth = pad(rows, BLOCK)
    copy(chunk.highest, 0, rows, s.before, 0)
    if made == 1:
        round_queries(queries, size, features, rows, z, chunk.den)
    for again in range(2):
        pack_queries(queries, size, features, depth, s.query_pairs, s.features, made)
        multiply(
            s.unit, s.key_rows, 0, s.features, BLOCK, s.size * s.features, s.query_pairs, 0, s.size,
            s.features // 2 * s.size, (made, made, 2), products, 0, s.size, depth, depth, s.features, False,
        )  # fmt: skip
        if all_seen:
            column_sums(products, rows, s.size, rows, chunk.inside)
        else:
            _cut_future(products, rows, s.size, chunk.inside)
        if again > 0 or not positive or not raise_queries(
            queries, size, rows, features, z, keys, row, chunk.scales, all_seen, chunk.den, chunk.inside, chunk.highest
        ):  # fmt: skip
            break
    for i in range(rows):
        chunk.den[i] += chunk.inside[i]


@phase
def _read(s, chunk, products, rows, e, seen, given, made):
    """Write what queries read of the sums, if any were seen, and of the chunk, as rows."""
    depth = pad(rows, BLOCK)
    pack_pairs(products, s.size, depth, depth, s.product_pairs, s.size, s.size // 2 * s.size, 2)
    if seen:
        multiply(
            s.unit, s.sum_rows, 0, s.features, BLOCK, s.columns * s.features, s.query_pairs, 0, s.size,
            s.features // 2 * s.size, (2, made, 2), s.turned, 0, s.size, s.columns, depth, s.features, False,
        )  # fmt: skip
    multiply(
        s.unit, s.value_rows, 0, s.size, BLOCK, s.columns * s.size, s.product_pairs, 0, s.size,
        s.size // 2 * s.size, (given, 2, 2), s.turned, 0, s.size, s.columns, depth, depth, seen,
    )  # fmt: skip
    transpose(s.turned, 0, s.size, e, rows, chunk.num, 0, chunk.row_e)


@phase
def _tell_far_rows(s, tile, phi_q, q, from_q, first, rows, all_seen, told, at_out):
    """Tell of rows that floats are to answer: far queries, small sums, and what sees the `first` far key."""
    zero, like = tile.den.dtype.type(0), tile.den
    faint, far = like.dtype.type(FAINT), like.dtype.type(FAR)
    near = all_near(q, from_q, rows * phi_q.dim, zero, far)
    for i in range(rows):
        x, den = window(q, from_q + i * phi_q.dim, phi_q.dim), tile.den[i]
        sees_far = first < rows if all_seen else first <= i
        low_den = tile.highest[i] != s.before[i] or (den != zero and not den >= faint)
        if sees_far or low_den or (not near and is_far(x, zero, far)):
            told[at_out + i] = 1


@compiled
def recur_tiles(
    phi_q, phi_k, e, tokens, masks, before, runs, reads, n, answers, after, chunk, taken, told, told_after, low, high
):  # fmt: skip
    """Take runs low to high, as `recur` does, and tell which rows and which sums floats are to answer.

    `taken` are parts of what is given, and of what is made. Rows of out are 1 in `told`, and runs in `told_after`.
    """
    phi_q, phi_k = unpack(phi_q), unpack(phi_k)
    features, groups = phi_k.features, reads.shape[1]
    given, made = taken
    rows_q, rows_k, rows_v, given_q, given_k = tokens
    rows_q, rows_k, rows_v = as_read(rows_q), as_read(rows_k), as_read(rows_v)
    like = rows_v[0]
    given_q, given_k = whole(given_q), whole(given_k)
    (mask, fresh), (out, peaks, z) = masks, answers
    tile, all_seen = room_for(phi_q, phi_k, e, pad(chunk, BLOCK), tokens, out, like), after[0].size == 0
    wide, row_e = tile.totals.size, tile.row_e
    s = _turned(features, e, chunk, given, made, like, np.zeros(0, np.uint32), np.zeros(0, np.uint16))
    products, no_mask = tile.products, window(mask, 0, 0)
    of_queries, of_keys = projector_for(phi_q, s.size, rows_q, like), projector_for(phi_k, s.size, rows_k, like)
    tops = features if phi_k.per_feature else 1
    sums = Sums(
        aligned(0 if all_seen else wide * row_e, like), aligned(wide, like), aligned(wide, like), aligned(wide, like),
        features, e, row_e, tops,
    )  # fmt: skip
    positive = phi_q.positive and phi_k.positive
    zero, least = like.dtype.type(0), negligible_size(like) if phi_k.positive else like.dtype.type(-np.inf)
    above, ended = rise_of(USUAL, like), True
    configure(s.unit)
    for r in range(low, high):
        head_k, head_v, head_m = runs[r, K], runs[r, V], runs[r, MASK]
        start, t, end = runs[r, BEFORE], runs[r, FIRST], runs[r, END]
        seen, far = start >= 0, False
        if seen:
            load_sums(sums, before, start)
            far = far_sums(sums)
            transpose(sums.s, 0, row_e, features, e, s.sums, 0, s.features)
        else:
            clear(sums)
        while t < end and ended:
            at_k, at_v, at_m, rows = head_k * n + t, head_v * n + t, head_m * n + t, min(chunk, end - t)
            if fresh.size > 0:
                if fresh[at_m]:
                    clear(sums)
                    seen, far = False, False
                rows = count_rows_of_sequence(fresh, at_m, rows)
            v, from_v = wide_rows(rows_v, at_v * e, rows * e, tile.wide_v)
            k, from_k = wide_rows(rows_k, at_k * phi_k.dim, rows * phi_k.dim, tile.wide_k)
            projected = project(s.unit, of_keys, k, from_k, phi_k.dim, rows, mask, at_m)
            rows = key_features(phi_k, k, from_k, rows, mask, at_m, given_k, at_k, above, zero, sums, tile, projected)
            if all_seen and rows < end - t:
                ended = False
                break
            first = _first_far(s, k, from_k, phi_k.dim, v, from_v, e, rows, mask, at_m, given_k, at_k)
            if far:
                first = 0
            if made == 1:  # numerators and denominators are of the same numbers
                round_rows(tile.keys, tile.row_k, rows, features)
                column_sums(tile.keys, rows, tile.row_k, features, tile.totals)
            if seen:
                _rescale(sums, s, tile.base, least)
                for c in range(e):
                    pack_row(
                        s.sums, c * s.features, features, s.sum_rows, c * s.features, s.columns * s.features, 2
                    )  # fmt: skip
            else:
                copy(tile.base, 0, tops, sums.units, 0)
            _pack_chunk(s, tile.keys, tile.row_k, features, e, rows, given, made)
            for g in range(groups):
                at_q, at_out = reads[r, g, QUERY] * n + t, reads[r, g, OUT] * n + t
                q, from_q = wide_rows(rows_q, at_q * phi_q.dim, rows * phi_q.dim, tile.wide_q)
                projected = project(s.unit, of_queries, q, from_q, phi_q.dim, rows, no_mask, 0)
                query_features(
                    phi_q, q, from_q, rows, sums.units, sums.z,
                    tile.packed, tile.queries, tile.size, tile.highest, tile.own, tile.den, tile.spare, projected,
                )  # fmt: skip
                _weigh(s, tile, products, rows, features, sums.z, all_seen, positive, made)
                _read(s, tile, products, rows, e, seen, given, made)
                write_rows(tile.num, row_e, rows, e, tile.den, tile.wide_out, out, at_out * e)
                if peaks.size > 0:
                    unit = zero if phi_q.per_feature else sums.units[0]
                    normalisers(phi_q, tile.den, unit, tile.highest, tile.own, rows, given_q, at_q, peaks, z, at_out)
                _tell_far_rows(s, tile, phi_q, q, from_q, first, rows, all_seen, told, at_out)
            far = far or first < rows
            if all_seen:
                break
            for a in range(features):
                sums.z[a] += tile.totals[a]
            depth = pad(rows, BLOCK)
            multiply(
                s.unit, s.value_rows, 0, s.size, BLOCK, s.columns * s.size, s.key_pairs, 0, s.features,
                s.size // 2 * s.features, (given, made, 2), s.sums, 0, s.features, s.columns, s.features, depth, seen,
            )  # fmt: skip
            seen = True
            t += rows
        if not all_seen:
            transpose(s.sums, 0, s.features, e, features, sums.s, 0, row_e)
            store_sums(sums, after, r, least)
            told_after[r] = 1 if far else 0
    release(s.unit)
    return ended
