"""The way back through linear attention, chunk by chunk: tokens that write to sums, and tokens that read them.

Keys write for queries on the way forwards, queries over their normalisers for keys on the way backwards. Both write
their features times a row [v, h], and a reader with a row [w, l] gets the cotangents of its features, the sums over
what it sees of features times v.w + h l.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, TALL, lanes
from kernattn.ops._numba.codegen.vectors import load, store, where
from kernattn.ops._numba.kinds import angular, column_join, column_pull
from kernattn.ops._numba.tiles.maps import unpacked
from kernattn.ops._numba.tiles.products import FULL, LOWER, UPPER, product, transpose
from kernattn.ops._numba.tiles.stream import fetch
from kernattn.ops._numba.tiles.sums import Sums, clear, load_sums, rescale, store_sums
from kernattn.ops.key_state_vjp.features_loops import read_weights, write_features
from kernattn.ops.key_state_vjp.tokens_loops import described, room_of, source

PIECE = 4 * TALL
"""Rows of a product, between which part of the next chunk is fetched."""


@inner
def _multiplied(across, count, row, factor, h, rows):
    """Multiply columns of rows (e, C), and h, by what their features lack; return whether there is anything."""
    one, some = factor.dtype.type(1), 0
    for i in range(rows):
        some += 1 if factor[i] != one else 0
    if some > 0:
        for c in range(count):
            y = window(across, c * row, rows)
            for i in range(rows):
                y[i] *= factor[i]
        for i in range(rows):
            h[i] *= factor[i]
    return some > 0


@inner_exact
def _zeros_below(pairs, rows, row, edge):
    """Put zeros where writer j stands after reader i, as far as blocks reach; edge is zeros, and as many ones."""
    zero, width = pairs.dtype.type(0), lanes(pairs)
    none = load(edge, 0)
    for j in range(rows):
        first = j // width * width
        for i in range(max(0, j + 1 - TALL) // width * width, first, width):
            store(none, pairs, j * row + i)
        y = load(pairs, j * row + first)
        store(where(load(edge, width - (j - first)) > zero, y, zero), pairs, j * row + first)


@inner_exact
def _cut(pairs, rows, row, left, right, edge):
    """Add left_j right_i to pairs (C, C) where writer j stands before reader i, or is its own, and zeros elsewhere."""
    width = lanes(pairs)
    for j in range(rows):
        for i in range(j // width * width, rows, width):
            store(load(pairs, j * row + i) + load(right, i) * left[j], pairs, j * row + i)
    _zeros_below(pairs, rows, row, edge)


@inner
def _place(result, at, step, rows, width, tile, row):
    """Return (array, first, stride) for rows of a result: where they belong, if whole blocks fit, else a tile."""
    if rows % ROWS == 0 and width % lanes(tile) == 0:
        return whole(result), at * width, step * width
    return whole(tile), 0, row


@inner
def _copied(y, first, stride, result, at, step, rows, width):
    """Copy rows from the tile, if `_place` was one, to where they belong."""
    if rows % ROWS > 0 or width % lanes(y) > 0:
        for j in range(rows):
            copy(y, first + stride * j, width, result, (at + step * j) * width)


@inner
def _results(phi, du, slopes, x, x_at, x_stride, rows, size, tile, row, scaled, dx, at, step):
    """Write the cotangents of rows from those of their projections, (D, C)."""
    dim = phi.dim
    y, first, stride = _place(dx, at, step, rows, dim, tile, row)
    if phi.omega.size > 0:
        product(du, 0, 1, size, phi.omega, 0, dim, y, first, stride, rows, dim, phi.frequencies, False, FULL)
    else:
        transpose(du, 0, size, dim, rows, y, first, stride)
    if scaled and phi.weights.size > 0:
        for j in range(rows):
            target, z, total = (
                window(y, first + stride * j, dim),
                window(x, x_at + x_stride * j, dim),
                slopes[j] + slopes[j],
            )
            for i in range(dim):
                target[i] += total * phi.weights[i] * z[i]
    _copied(y, first, stride, dx, at, step, rows, dim)


@inner
def _add_offsets(f, count, row, rows, numbers, to):
    """Add the sums of f (M, C) over the tokens to numbers, from `to` on."""
    for a in range(count):
        y, total = window(f, a * row, rows), f.dtype.type(0)
        for i in range(rows):
            total += y[i]
        numbers[to + a] += total


@inner
def _add_weights(x, at, stride, rows, slopes, total):
    """Add the squares of rows, times slopes."""
    for j in range(rows):
        y = window(x, at + stride * j, total.size)
        for i in range(total.size):
            total[i] += slopes[j] * y[i] * y[i]


@inner
def _fetch_next(tokens, heads, n, position, step, rows, dim, e, i, some, features):
    """Fetch the i-th to (i + some)-th of so many parts of the next chunk."""
    x, v, out, _, _, _ = tokens
    first = position + rows if step > 0 else position - 2 * rows + 1
    low, high = dim * rows * i // features, dim * rows * (i + some) // features
    fetch(x, (heads[0] * n + first) * dim + low, high - low)
    low, high = e * rows * i // features, e * rows * (i + some) // features
    fetch(v, (heads[1] * n + first) * e + low, high - low)
    if out.size > 0:
        fetch(out, (heads[2] * n + first) * e + low, high - low)


@compiled
def walk(
    phi_w, phi_r, e, writers, readers, masks, before, runs, n, results, after, far, chunk, step, modes, low, high
):  # fmt: skip
    """Take runs low to high, each of them tokens of one head, the last one first where step is -1.

    writers and readers are x, v, outputs, h, and z and peaks of normalisers, all flat. Without normalisers there is no
    h and the row is [v, 1], else it is [v, h]; where there are outputs o, h becomes -v.o. runs (R, 12): of a writer the
    heads of x, of v, of outputs, and of the mask; the same of a reader; the heads of what came before, or -1, and of
    the results; first token in the order of the walk, and the one after the last. masks are those of writers and
    readers, and where sequences begin in the order of the walk. results are the cotangents of a reader's x, of what it
    reads, and of omega, offset and row_weights of its map, one after the other. modes: are there writers? readers? Is
    what they read wanted? Does a reader's log scale count? Are sizes looked at? far_r becomes how many rows of a run
    were too large or too small.
    """
    phi_w, phi_r = unpacked(phi_w), unpacked(phi_r)
    (mask_w, mask_r, fresh), (dx, read, numbers) = masks, results
    writes, reads, wants, scaled, checks = modes
    like, features = whole(writers[0]), phi_r.features
    nothing = like.dtype.type(-np.inf)
    size, row_e = tile_rows(chunk, like), tile_rows(e, like)
    wide = tile_rows(max(features, phi_w.frequencies, phi_r.frequencies), like)
    row_k, row_dx = pad(wide, lanes(like)) + lanes(like), tile_rows(phi_r.dim, like)
    tops = features if phi_r.per_feature else 1
    sums = Sums(
        aligned(wide * row_e, like), aligned(wide, like), aligned(wide, like), aligned(wide, like),
        features, e, row_e, tops,
    )  # fmt: skip
    base, reached, totals = aligned(wide, like), aligned(wide, like), aligned(wide, like)
    left, right = room_of(phi_w.dim, e, size, like), room_of(phi_r.dim, e, size, like)
    keys, weights, f = aligned(size * row_k, like), aligned(wide * size, like), aligned(wide * size, like)
    packed, across = aligned(size * phi_r.dim, like), aligned(row_e * size, like)
    pairs, spare, rows_dx = aligned(size * size, like), aligned(size * row_e, like), aligned(size * row_dx, like)
    angles = aligned(wide * size if angular(phi_r.kind) else 0, like)
    slopes, frequencies = aligned(size, like), phi_r.frequencies
    dim_all = frequencies * phi_r.dim
    steep = aligned(tile_rows(frequencies, like) * row_dx if numbers.size > 0 else 0, like)
    whole_rows = numbers.size == 0  # else a product reads them by vectors
    width, edge = lanes(like), aligned(2 * lanes(like), like)
    edge[width:] = 1
    in_place_w = phi_w.omega_t.size == 0
    left_v = left.v
    num, num_at, num_row = whole(spare), 0, row_e
    for r in range(low, high):
        start, t, end, count = runs[r, 8], runs[r, 10], runs[r, 11], 0
        clear(sums)
        if start >= 0:
            load_sums(sums, before, start)
        seen = start >= 0
        while t < end:
            rows, position = min(chunk, end - t), t if step > 0 else n - 1 - t
            if writes:
                if fresh.size > 0:
                    at = runs[r, 3] * n + t
                    if fresh[at]:
                        clear(sums)
                        seen = False
                    for j in range(1, rows):
                        if fresh[at + j]:
                            rows = j
                            break
                heads = window(runs[r], 0, 4)
                at_m = heads[3] * n + position
                count += described(phi_w, writers, e, heads, mask_w, n, position, step, rows, left, checks)
                x, x_at, x_row = source(
                    writers[0], heads[0] * n + position, step, rows, phi_w.dim, mask_w, at_m, left.x, phi_w.dim,
                    in_place_w,
                )  # fmt: skip
                source(writers[1], heads[1] * n + position, step, rows, e, mask_w, at_m, left_v, row_e, False)
                rows = write_features(phi_w, x, x_at, x_row, left, rows, keys, row_k, sums, base, reached, totals)
                if seen:
                    rescale(sums, base, nothing)
                else:
                    copy(base, 0, tops, sums.units, 0)
                    for a in range(features):
                        sums.z[a] = 0
            if reads:
                heads = window(runs[r], 4, 4)
                at_m = heads[3] * n + position
                count += described(phi_r, readers, e, heads, mask_r, n, position, step, rows, right, checks)
                x, x_at, x_row = source(
                    readers[0], heads[0] * n + position, step, rows, phi_r.dim, mask_r, at_m, right.x, phi_r.dim,
                    whole_rows,
                )  # fmt: skip
                if phi_r.omega.size > 0:
                    transpose(x, x_at, x_row, rows, phi_r.dim, packed, 0, size)
                    product(
                        phi_r.omega, 0, phi_r.dim, 1, packed, 0, size, weights, 0, size,
                        phi_r.frequencies, rows, phi_r.dim, False, FULL,
                    )  # fmt: skip
                else:
                    transpose(x, x_at, x_row, rows, phi_r.dim, weights, 0, size)
                copy(weights, 0, angles.size, angles, 0)
                read_weights(phi_r, weights, size, right, rows, sums.units)
                v, v_at, v_row = source(
                    readers[1], heads[1] * n + position, step, rows, e, mask_r, at_m, right.v, row_e, True
                )
                transpose(v, v_at, v_row, rows, e, across, 0, size)
                at = runs[r, 9] * n + position
                if wants:
                    num, num_at, num_row = _place(read, at, step, rows, e, spare, row_e)
                factors = _multiplied(across, e, size, right.factor, right.h, rows)
                for i in range(0, features, PIECE):
                    some, to = min(PIECE, features - i), i * size
                    _fetch_next(readers, heads, n, position, step, rows, phi_r.dim, e, i, some, features)
                    if seen:
                        product(sums.s, i * row_e, row_e, 1, across, 0, size, f, to, size, some, rows, e, False, FULL)
                    elif not writes:
                        for c in range(to, to + some * size):
                            f[c] = 0
                if wants and seen:
                    product(weights, 0, 1, size, sums.s, 0, row_e, num, num_at, num_row, rows, e, features, False, FULL)
                if writes:
                    product(left_v, 0, row_e, 1, across, 0, size, pairs, 0, size, rows, rows, e, False, UPPER)
                    _cut(pairs, rows, size, left.h, right.h, edge)
                    for i in range(0, rows, width):  # readers i see writers up to i
                        some = min(width, rows - i)
                        depth = min(rows, i + some)
                        product(keys, 0, 1, row_k, pairs, i, size, f, i, size, features, some, depth, seen, FULL)
                if wants and writes:
                    product(keys, 0, row_k, 1, weights, 0, size, pairs, 0, size, rows, rows, features, False, UPPER)
                    _zeros_below(pairs, rows, size, edge)
                    product(pairs, 0, 1, size, left_v, 0, row_e, num, num_at, num_row, rows, e, rows, seen, LOWER)
                column_pull(phi_r, f, weights, sums.z, right.h, size, slopes)
                if numbers.size > 0 and not phi_r.phase:
                    _add_offsets(f, features, size, rows, numbers, dim_all)
                column_join(phi_r, f, weights, angles, size)
                if numbers.size > 0:
                    if phi_r.phase:
                        _add_offsets(f, features, size, rows, numbers, dim_all)
                    if scaled and phi_r.weights.size > 0:
                        _add_weights(x, x_at, x_row, rows, slopes, window(numbers, dim_all + features, phi_r.dim))
                    if phi_r.omega.size > 0:
                        product(
                            f, 0, size, 1, x, x_at, x_row, steep, 0, row_dx, frequencies, phi_r.dim, rows, True, FULL
                        )
                _results(phi_r, f, slopes, x, x_at, x_row, rows, size, rows_dx, row_dx, scaled, dx, at, step)
                if wants:
                    for j in range(rows if factors else 0):
                        y, factor = window(num, num_at + num_row * j, e), right.factor[j]
                        for c in range(e):
                            y[c] *= factor
                    _copied(num, num_at, num_row, read, at, step, rows, e)
            if writes:
                for a in range(features):
                    sums.z[a] += totals[a]
                heads = window(runs[r], 0, 4)
                for i in range(0, features, PIECE):
                    some, to = min(PIECE, features - i), i * row_e
                    _fetch_next(writers, heads, n, position, step, rows, phi_w.dim, e, i, some, features)
                    product(keys, i, 1, row_k, left_v, 0, row_e, sums.s, to, row_e, some, e, rows, seen, FULL)
                seen = True
            t += rows
        far[r] = count
        if after[0].size > 0:
            store_sums(sums, after, r, nothing)
    if numbers.size > 0:
        for a in range(frequencies):
            copy(steep, a * row_dx, phi_r.dim, numbers, a * phi_r.dim)
