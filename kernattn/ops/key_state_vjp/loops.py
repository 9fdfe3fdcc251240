"""The way back through linear attention, chunk by chunk: tokens that write to sums, and tokens that read them.

Keys write for queries on the way forwards, queries over their normalisers for keys on the way backwards. Both write
their features times a row [v, h], and a reader with a row [w, l] gets the cotangents of its features, the sums over
what it sees of features times v.w + h l.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.compile import compiled, inner, inner_exact
from kernattn.ops._numba.elementary import weight
from kernattn.ops._numba.held import ends
from kernattn.ops._numba.kinds import angular, column_logs, column_pull, column_values, row_values
from kernattn.ops._numba.lifts import USUAL, rise_of
from kernattn.ops._numba.maps import unpacked
from kernattn.ops._numba.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.products import FULL, LOWER, UPPER, panel_product, product, transpose
from kernattn.ops._numba.registers import lanes
from kernattn.ops._numba.sums import Sums, clear, load_sums, rescale, store_sums
from kernattn.ops._numba.tiles import key_values, key_weights
from kernattn.ops._numba.vectors import load, store

__all__ = ["Tile", "walk"]

ORDINARY = 2.0**16  # the largest size of rows whose features have no log scale
SMALL, LARGE = 60.0, 2.0**15  # of logs of factors, without log scales and with them


class Tile(NamedTuple):
    """Tokens of a chunk in the order of the walk; made in compiled code, where it costs nothing."""

    x: Any  # (C, d)
    v: Any  # (C, row)
    h: Any  # (C,)
    scales: Any  # (C,), logs of factors of the features; -inf for a token that counts for nothing
    row: Any


@inner
def _tile(dim, e, size, like):
    row = tile_rows(e, like)
    return Tile(aligned(size * dim, like), aligned(size * row, like), aligned(size, like), aligned(size, like), row)


@inner
def _upwards(i, rows, step):
    """Return the i-th token of a chunk in the order of memory, which is fetched ahead of those who read on."""
    return i if step > 0 else rows - 1 - i


@inner
def _copied(x, at, step, rows, width, mask, mask_at, tile, row, reach):
    """Copy rows of x in steps to a tile, masked ones as zeros; return how many have sum_i |x_i| reach not below 1."""
    far = 0
    for i in range(rows):
        j = _upwards(i, rows, step)
        target = window(tile, j * row, width)
        if mask.size > 0 and not mask[mask_at + step * j]:
            for c in range(width):
                target[c] = 0
        else:
            source, total = window(x, at + step * j * width, width), x.dtype.type(0)
            for c in range(width):
                target[c] = source[c]
                total += abs(source[c]) * reach
            far += 0 if total < 1 else 1
    return far


@inner
def _loaded(phi, tokens, e, heads, mask, n, position, step, rows, tile):
    """Read tokens of a chunk; return how many are not ordinary."""
    x, v, out, z, peaks = tokens
    dim, zero, one, nothing = phi.dim, x.dtype.type(0), x.dtype.type(1), x.dtype.type(-np.inf)
    at_x, at_v = heads[0] * n + position, heads[1] * n + position
    at_out, at_m = heads[2] * n + position, heads[3] * n + position
    reach = x.dtype.type(1 / ORDINARY) if phi.positive else phi.precise
    far = _copied(x, at_x * dim, step, rows, dim, mask, at_m, tile.x, dim, reach)
    far += _copied(v, at_v * e, step, rows, e, mask, at_m, tile.v, tile.row, x.dtype.type(1 / ends(x).large))
    limit = x.dtype.type(SMALL if phi.positive else LARGE)
    for t in range(rows):
        j = _upwards(t, rows, step)
        values, h, s, scale = window(tile.v, j * tile.row, e), one, one, zero
        if out.size > 0:
            o, h = window(out, (at_out + step * j) * e, e), zero
            for i in range(e):
                h -= values[i] * o[i]
        if z.size > 0:
            scale, s = -peaks[at_out + step * j], z[at_out + step * j]
            scale, s = (nothing, s) if s == zero else (scale, one / s)
            h *= s
            for i in range(e):
                values[i] *= s
        if mask.size > 0 and not mask[at_m + step * j]:
            scale = nothing
        elif phi.weights.size > 0:
            row = window(tile.x, j * dim, dim)
            for i in range(dim):
                scale += phi.weights[i] * row[i] * row[i]
        far += 0 if abs(scale) < limit or scale == nothing else 1
        far += 0 if abs(h) < ends(x).large else 1
        tile.h[j], tile.scales[j] = h, scale
    return far


@inner
def _writer_features(phi, tile, rows, keys, row, sums, base, reached, totals, spare):
    """Write the features of tokens, (C, M), in units that `base` becomes; return how many tokens share them."""
    zero, frequencies = keys.dtype.type(0), phi.frequencies
    if phi.omega_t.size > 0:
        panel_product(tile.x, rows, phi.dim, phi.omega_t, 0, frequencies, keys, row)
    else:
        for j in range(rows):
            copy(tile.x, j * phi.dim, phi.dim, keys, j * row)
    above = rise_of(USUAL, keys)
    if phi.per_feature:
        rows = key_weights(phi, rows, keys, row, tile.scales, sums.reached, above, zero, base, reached, totals)
        copy(reached, 0, phi.features, sums.reached, 0)
    elif phi.positive:
        for j in range(rows):
            row_values(phi, keys, j * row, 0, frequencies, phi.amplitude * weight(tile.scales[j], zero, zero))
        base[0] = sums.reached[0] = zero
    else:
        rows, base[0], sums.reached[0] = key_values(
            phi, tile.x, 0, rows, keys, row, tile.scales, sums.reached[0], above, zero, spare, totals
        )
    return rows


@inner_exact
def _reader_weights(phi, tile, row, scales, units, factor):
    """Turn projections (D, C) into features (M, C) times e^scales_i and the unit of the sums, e^scales_i to factors."""
    zero, width = tile.dtype.type(0), lanes(tile)
    if phi.per_feature:
        column_logs(phi, tile, row)
        for a in range(phi.features):
            add, unit = phi.offset[a], units[a]
            for i in range(0, row, width):
                at = a * row + i
                store(weight(load(tile, at) + add + load(scales, i), unit, zero), tile, at)
    else:
        column_values(phi, tile, row)
        unit, amplitude = units[0], phi.amplitude
        for i in range(0, row, width):
            store(weight(load(scales, i), unit, zero) * amplitude, factor, i)
        for a in range(phi.features):
            for i in range(0, row, width):
                at = a * row + i
                store(load(tile, at) * load(factor, i), tile, at)


@inner
def _add_ranks(x, count, row, left, right):
    """Add left_a right_i to x (count, row)."""
    for a in range(count):
        y, factor = window(x, a * row, row), left[a]
        for i in range(row):
            y[i] += factor * right[i]


@inner
def _cut(x, rows, row):
    """Put zeros where a writer stands after its reader: column i sees the rows up to i."""
    for j in range(1, rows):
        y = window(x, j * row, row)
        for i in range(j):
            y[i] = 0


@inner
def _results(phi, du, totals, tile, rows, size, rows_dx, row_dx, scaled, dx, at, step):
    """Write the cotangents of rows from those of their projections, (D, C)."""
    dim = phi.dim
    if phi.omega.size > 0:
        product(du, 0, 1, size, phi.omega, 0, dim, rows_dx, 0, row_dx, rows, dim, phi.frequencies, False, FULL)
    else:
        transpose(du, 0, size, dim, rows, rows_dx, 0, row_dx)
    for t in range(rows):
        j = _upwards(t, rows, step)
        source, target = window(rows_dx, j * row_dx, dim), window(dx, (at + step * j) * dim, dim)
        if scaled and phi.weights.size > 0:
            x, total = window(tile.x, j * dim, dim), totals[j] + totals[j]
            for i in range(dim):
                target[i] = source[i] + total * phi.weights[i] * x[i]
        else:
            for i in range(dim):
                target[i] = source[i]


@compiled
def walk(
    phi_w, phi_r, e, writers, readers, masks, before, runs, n, results, after, far, chunk, step, modes, low, high
):  # fmt: skip
    """Take runs low to high, each of them n tokens of one head, the last one first where step is -1.

    writers and readers are x, v, outputs, and z and peaks of normalisers, flat, and empty where there are none: with
    outputs o, the row [v, h] has h = -v.o, else 1, and both are divided by z. runs (R, 10): of a writer the heads of x,
    of v, of outputs, signs and scales, and of the mask; the same of a reader; of what came before or -1, and of the
    results. masks are those of writers and readers, and where sequences begin in the order of the walk. results are
    the cotangents of a reader's x, and of what it reads. modes: are there writers? readers? Is what they
    read wanted? Does a reader's log scale count? far_r becomes how many rows of a run were too large or too small.
    """
    phi_w, phi_r = unpacked(phi_w), unpacked(phi_r)
    (mask_w, mask_r, fresh), (dx, read) = masks, results
    writes, reads, wants, scaled = modes
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
    base, reached, totals, spare = aligned(wide, like), aligned(wide, like), aligned(wide, like), aligned(wide, like)
    left, right = _tile(phi_w.dim, e, size, like), _tile(phi_r.dim, e, size, like)
    keys, weights, f = aligned(size * row_k, like), aligned(wide * size, like), aligned(wide * size, like)
    packed, across = aligned(size * phi_r.dim, like), aligned(tile_rows(e, like) * size, like)
    pairs, num, rows_dx = aligned(size * size, like), aligned(size * row_e, like), aligned(size * row_dx, like)
    angles = aligned(wide * size if angular(phi_r.kind) else 0, like)
    factor, slopes = aligned(size, like), aligned(size, like)
    wide_step = 2 * lanes(like)
    for r in range(low, high):
        start, t, count = runs[r, 8], 0, 0
        clear(sums)
        if start >= 0:
            load_sums(sums, before, start)
        seen = start >= 0
        while t < n:
            rows, position = min(chunk, n - t), t if step > 0 else n - 1 - t
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
                count += _loaded(phi_w, writers, e, window(runs[r], 0, 4), mask_w, n, position, step, rows, left)
                rows = _writer_features(phi_w, left, rows, keys, row_k, sums, base, reached, totals, spare)
                if seen:
                    rescale(sums, base, nothing)
                else:
                    copy(base, 0, tops, sums.units, 0)
                    for a in range(features):
                        sums.z[a] = 0
            if reads:
                count += _loaded(phi_r, readers, e, window(runs[r], 4, 4), mask_r, n, position, step, rows, right)
                if phi_r.omega.size > 0:
                    transpose(right.x, 0, phi_r.dim, rows, phi_r.dim, packed, 0, size)
                    product(
                        phi_r.omega, 0, phi_r.dim, 1, packed, 0, size, weights, 0, size,
                        phi_r.frequencies, rows, phi_r.dim, False, FULL,
                    )  # fmt: skip
                else:
                    transpose(right.x, 0, phi_r.dim, rows, phi_r.dim, weights, 0, size)
                copy(weights, 0, angles.size, angles, 0)
                _reader_weights(phi_r, weights, size, right.scales, sums.units, factor)
                transpose(right.v, 0, row_e, rows, e, across, 0, size)
                if seen:
                    product(sums.s, 0, row_e, 1, across, 0, size, f, 0, size, features, rows, e, False, FULL)
                elif not writes:
                    for i in range(features * size):
                        f[i] = 0
                if wants and seen:
                    product(weights, 0, 1, size, sums.s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
                if writes:
                    product(left.v, 0, row_e, 1, across, 0, size, pairs, 0, size, rows, rows, e, False, UPPER)
                    _add_ranks(pairs, rows, size, left.h, right.h)
                    _cut(pairs, rows, size)
                    for i in range(0, rows, wide_step):  # readers i see writers up to i
                        some = min(wide_step, rows - i)
                        product(
                            keys,
                            0,
                            1,
                            row_k,
                            pairs,
                            i,
                            size,
                            f,
                            i,
                            size,
                            features,
                            some,
                            min(rows, i + some),
                            seen,
                            FULL,
                        )
                if wants and writes:
                    product(keys, 0, row_k, 1, weights, 0, size, pairs, 0, size, rows, rows, features, False, UPPER)
                    _cut(pairs, rows, size)
                    product(pairs, 0, 1, size, left.v, 0, row_e, num, 0, row_e, rows, e, rows, seen, LOWER)
                column_pull(phi_r, f, weights, angles, factor, sums.z, right.h, size, slopes)
                at = runs[r, 9] * n + position
                _results(phi_r, f, slopes, right, rows, size, rows_dx, row_dx, scaled, dx, at, step)
                if wants:
                    for i in range(rows):
                        j = _upwards(i, rows, step)
                        copy(num, j * row_e, e, read, (at + step * j) * e)
            if writes:
                for j in range(rows):
                    x, h = window(keys, j * row_k, features), left.h[j]
                    for a in range(features):
                        sums.z[a] += x[a] * h
                product(keys, 0, 1, row_k, left.v, 0, row_e, sums.s, 0, row_e, features, e, rows, seen, FULL)
                seen = True
            t += rows
        far[r] = count
        if after[0].size > 0:
            store_sums(sums, after, r, nothing)
