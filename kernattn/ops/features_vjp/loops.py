"""The way back through features: they are computed once more, a block of rows at a time, and meet their cotangents."""

import math
from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import LINE, lanes
from kernattn.ops._numba.far.clamped import within
from kernattn.ops._numba.kinds import angular, row_pull
from kernattn.ops._numba.tiles.chunk import row_scales
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.products import FULL, panel_product, product
from kernattn.ops._numba.tiles.rows import as_read, read_row, read_rows, room_of, wide_rows

STEEP = 70.0  # e^70, and with it an amplitude of 2^16, is a float32


class Scratch(NamedTuple):
    """Where a block of rows is pulled back; made in compiled code, where it costs nothing."""

    x: Any  # (size, d)
    tile: Any  # (size, row), projections, and what becomes of them
    scales: Any  # (size,), log scales
    totals: Any  # (size,), their cotangents
    dx: Any  # (size, row_d)
    g: Any  # cotangents of 16 bits as floats: of a part of a row's features, or of a block of numbers
    g_other: Any  # (span,), of features that come second in their pairs
    row: Any
    row_d: Any


@inner
def _scratch(dim, chunk, span, wide, other, like):
    size, row, row_d = tile_rows(chunk, like), 2 * pad(span, lanes(like)) + lanes(like), tile_rows(dim, like)
    return Scratch(
        aligned(size * dim + LINE, like), aligned(size * row, like), aligned(size, like), aligned(size, like),
        aligned(size * row_d, like), aligned(wide, like), aligned(other, like), row, row_d,
    )  # fmt: skip


@inner
def _load(phi, scratch, x, given, first, rows, no_mask, far):
    """Read a block of rows and their log scales; those that are far count as zeros from here on."""
    s, dim = scratch, phi.dim
    read_rows(x, first * dim, rows, dim, no_mask, 0, s.x, dim)
    row_scales(phi.weights, s.x, rows, dim, dim, given, first, no_mask, 0, s.scales)
    for j in range(rows):
        row, scale = window(s.x, j * dim, dim), s.scales[j]
        s.totals[j] = 0
        far[first + j] = not ((phi.reach == 0 or within(row, phi.reach)) and (phi.per_feature or scale < STEEP))
        if far[first + j]:
            s.scales[j] = 0
            for i in range(dim):
                row[i] = 0


@inner
def _finish(phi, scratch, first, rows, dx, slopes, weights, far):
    """Write the cotangents of rows, or those of their log scales apart where there is room for these."""
    s, dim = scratch, phi.dim
    for j in range(rows):
        source, x, total = window(s.dx, j * s.row_d, dim), window(s.x, j * dim, dim), s.totals[j]
        target = window(dx, (first + j) * dim, dim)
        far[first + j] = far[first + j] or not math.isfinite(total)
        for i in range(dim):
            target[i] = source[i]
        if slopes.size > 0:
            slopes[first + j] = total
        elif phi.weights.size > 0:
            for i in range(dim):
                target[i] += (total + total) * phi.weights[i] * x[i]
        for i in range(weights.size):
            weights[i] += total * x[i] * x[i]


@compiled
def pull_features(arrays, x, given, g, n, dx, slopes, numbers, far, no_mask, of_omega, chunk, span, slabs, low, high):
    """Pull blocks of `chunk` rows of x (n, d) back from g (n, M), both (floats, bits, kind): of slabs low to high.

    A slab has numbers of its own, where they are wanted: `of_omega` ones of a tile of cotangents of omega, then those
    of the offset and of the row weights. slopes (n,) or nothing become the cotangents of the rows' log scales, which
    then do not count in dx. far_j says that the cotangents of row j are for others to find.
    """
    phi, x, given, of_phi, dx = unpack(arrays), as_read(x), whole(given), as_read(g), whole(dx)
    dim, frequencies, features = phi.dim, phi.frequencies, phi.features
    numbers_alone = phi.positive and phi.omega.size == 0
    wide, other = room_of(chunk * features if numbers_alone else span, of_phi), room_of(span, of_phi)
    s, zero = _scratch(dim, chunk, span, wide, other, dx), dx.dtype.type(0)
    blocks = (n + chunk - 1) // chunk
    learnt = numbers.size > 0
    for slab in range(low, high):
        own = window(numbers, slab * (numbers.size // slabs), numbers.size // slabs)
        weights = window(own, of_omega + features if learnt else 0, phi.weights.size if learnt else 0)
        for first in range(blocks * slab // slabs * chunk, min(n, blocks * (slab + 1) // slabs * chunk), chunk):
            rows = min(chunk, n - first)
            if numbers_alone:  # one by one, and none is far
                g, at_g = wide_rows(of_phi, first * features, rows * features, s.g)
                read_row(x, first * dim, rows * dim, dx, first * dim)
                row, f = window(dx, first * dim, rows * dim), window(g, at_g, rows * dim)
                row_pull(phi, row, row, f, f, 0, zero, phi.amplitude, weights, weights)
                for i in range(row.size):
                    if f[i] == zero:  # whatever x is
                        row[i] = zero
                continue
            _load(phi, s, x, given, first, rows, no_mask, far)
            for begin in range(0, frequencies, span):
                count = min(span, frequencies - begin)
                if phi.omega.size > 0:
                    panel_product(s.x, rows, dim, phi.omega_t, begin, count, s.tile, s.row)
                else:
                    for j in range(rows):
                        copy(s.x, j * dim + begin, count, s.tile, j * s.row)
                offset = window(own, of_omega + begin, count if learnt else 0)
                offset_other = window(own, of_omega + frequencies + begin, count if learnt else 0)
                for j in range(rows):
                    row, at = window(s.tile, j * s.row, count), (first + j) * features + begin
                    if far[first + j]:
                        for a in range(count):
                            row[a] = 0
                        continue
                    factor = phi.amplitude
                    if angular(phi.kind):
                        factor *= exponential(s.scales[j])
                    g, at_g = wide_rows(of_phi, at, count, s.g)
                    g_other, at_other = g, at_g
                    if features > frequencies:
                        at += features - frequencies
                        g_other, at_other = wide_rows(of_phi, at, count, s.g_other)
                    s.totals[j] += row_pull(
                        phi, row, window(s.tile, j * s.row + count, count), window(g, at_g, count),
                        window(g_other, at_other, count), begin, s.scales[j], factor, offset, offset_other,
                    )  # fmt: skip
                if phi.omega.size > 0:
                    product(
                        s.tile, 0, s.row, 1, phi.omega, begin * dim, dim, s.dx, 0, s.row_d,
                        rows, dim, count, begin > 0, FULL,
                    )  # fmt: skip
                    if learnt:
                        product(
                            s.tile, 0, 1, s.row, s.x, 0, dim, own, begin * s.row_d, s.row_d,
                            count, dim, rows, True, FULL,
                        )  # fmt: skip
                else:
                    for j in range(rows):
                        copy(s.tile, j * s.row, count, s.dx, j * s.row_d + begin)
            _finish(phi, s, first, rows, dx, slopes, weights, far)
