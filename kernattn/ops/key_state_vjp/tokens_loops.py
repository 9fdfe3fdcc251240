"""Tokens of a walk as they are read and written: in place where nothing stands in the way, in the order of the walk."""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import change_of_unit, log_of, octaves
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, copy, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import LINE, ROWS, lanes
from kernattn.ops._numba.far.clamped import ends, within
from kernattn.ops._numba.tiles.rows import room_of, wide_chunk

ORDINARY = 2.0**16  # the largest size of rows whose features have no log scale
SMALL, LARGE = 60.0, 2.0**15  # of logs of factors, without log scales and with them


class Tile(NamedTuple):
    """Tokens of a chunk in the order of the walk; made in compiled code, where it costs nothing.

    The features of a token are those of its row times e^scale 2^octave rest.
    """

    x: Any  # (C, d), of rows that are not read in place
    v: Any  # (C, row)
    h: Any  # (C,)
    scales: Any  # (C,), -inf for a token that counts for nothing
    octaves: Any  # (C,), whole
    rest: Any  # (C,)
    logs: Any  # (C,), of e^scale 2^octave: what units are chosen by
    factor: Any  # (C,), what multiplies a row that was read
    wide_x: Any  # (C, d), of rows of 16 bits, as they lie; so too those of v and of outputs
    wide_v: Any
    wide_out: Any
    row: Any


class Chunk(NamedTuple):
    """Rows of a chunk as floats: arrays, and which of their rows is the first one in the order of the walk."""

    x: Any
    at_x: Any
    v: Any
    at_v: Any
    out: Any
    at_out: Any


@inner
def empty_tile(tokens, dim, e, size, like):
    """Return an empty tile."""
    row, more = tile_rows(e, like), LINE // like.itemsize
    x, v, out = tokens[0], tokens[1], tokens[2]
    return Tile(
        aligned(size * dim + more, like), aligned(size * row, like), aligned(size, like), aligned(size, like),
        aligned(size, like), aligned(size, like), aligned(size, like), aligned(size, like),
        aligned(room_of(size * dim, x), like), aligned(room_of(size * e, v), like),
        aligned(room_of(size * e, out), like), row,
    )  # fmt: skip


@inner
def chunk_of(tokens, heads, n, position, step, rows, dim, e, tile):
    """Return the rows of a chunk."""
    x, at_x = wide_chunk(tokens[0], heads[0] * n + position, step, rows, dim, tile.wide_x)
    v, at_v = wide_chunk(tokens[1], heads[1] * n + position, step, rows, e, tile.wide_v)
    given = tokens[2][0].size + tokens[2][1].size > 0
    out, at_out = wide_chunk(tokens[2], heads[2] * n + position, step, rows if given else 0, e, tile.wide_out)
    return Chunk(x, at_x, v, at_v, out, at_out)


@inner
def source(x, at, step, rows, width, mask, mask_at, tile, row, direct):
    """Return (array, first, stride): rows of x themselves where `direct`, or copies of them, masked ones as zeros."""
    if direct and mask.size == 0:
        return whole(x), at * width, step * width
    for i in range(rows):
        j = i if step > 0 else rows - 1 - i  # upwards in memory
        target = window(tile, j * row, width)
        if mask.size > 0 and not mask[mask_at + step * j]:
            for c in range(width):
                target[c] = 0
        else:
            copy(x, (at + step * j) * width, width, tile, j * row)
    return whole(tile), 0, row


@inner
def place(result, at, step, rows, width, tile, row):
    """Return (array, first, stride) for rows of a result: where they belong, if whole blocks fit, else a tile."""
    if result[2] == 0 and rows % ROWS == 0 and width % lanes(tile) == 0:
        return whole(result[0]), at * width, step * width
    return whole(tile), 0, row


@inner
def copy_back(y, first, stride, result, at, step, rows, width):
    """Copy rows from the tile, if `place` was one, to where they belong."""
    floats, bits, kind = result
    if kind != 0:
        for j in range(rows):
            narrow(y, first + stride * j, width, bits, kind, (at + step * j) * width)
    elif rows % ROWS > 0 or width % lanes(y) > 0:
        for j in range(rows):
            copy(y, first + stride * j, width, floats, (at + step * j) * width)


@inner
def _count_far(x, at, step, rows, width, mask, mask_at, reach):
    """Return how many rows have sum_i |x_i| reach not below 1."""
    if within(window(x, (at if step > 0 else at - rows + 1) * width, rows * width), reach):
        return 0
    far = 0
    for j in range(rows):
        if mask.size == 0 or mask[mask_at + step * j]:
            far += 0 if within(window(x, (at + step * j) * width, width), reach) else 1
    return far


@inner
def _set_h(chunk, h, at, e, step, rows):
    """Set h to -v.o."""
    for j in range(rows):
        x, y = window(chunk.v, (chunk.at_v + step * j) * e, e), window(chunk.out, (chunk.at_out + step * j) * e, e)
        total = x.dtype.type(0)
        for i in range(e):
            total -= x[i] * y[i]
        h[at + step * j] = total


@inner
def describe(phi, chunk, said, e, mask, at, at_m, step, rows, tile, checks):
    """Set what is said of each token but its rows; return how many of them are not ordinary, where it `checks`.

    What was `said` of them, from `at` on, is h, z and peaks of normalisers, and whether there are outputs.
    """
    (h, z, peaks, answered), x, at_x, v, at_v = said, chunk.x, chunk.at_x, chunk.v, chunk.at_v
    dim, zero, one, nothing = phi.dim, x.dtype.type(0), x.dtype.type(1), x.dtype.type(-np.inf)
    far = 0
    if checks:
        reach = x.dtype.type(1 / ORDINARY) if phi.positive else phi.precise
        far += _count_far(x, at_x, step, rows, dim, mask, at_m, reach)
        far += _count_far(v, at_v, step, rows, e, mask, at_m, x.dtype.type(1 / ends(x).large))
    if answered:
        _set_h(chunk, h, at, e, step, rows)
    if h.size == 0:
        for j in range(rows):
            tile.h[j] = tile.rest[j] = one
            tile.octaves[j] = tile.scales[j] = zero
        if phi.weights.size > 0:
            for j in range(rows):
                row, scale = window(x, (at_x + step * j) * dim, dim), zero
                for i in range(dim):
                    scale += phi.weights[i] * row[i] * row[i]
                tile.scales[j] = scale
    else:
        for j in range(rows):
            d, peak, octave, rest = z[at + step * j], peaks[at + step * j], zero, zero
            tile.h[j], tile.scales[j] = h[at + step * j], nothing
            if d != zero:
                octave, rest, tile.scales[j] = octaves(-peak), one / d, zero
                if log_of(-octave) != peak:
                    rest *= change_of_unit(-peak, zero, octave)
            tile.octaves[j], tile.rest[j] = octave, rest
    if mask.size > 0:
        for j in range(rows):
            tile.scales[j] = tile.scales[j] if mask[at_m + step * j] else nothing
    limit = x.dtype.type(SMALL if phi.positive else LARGE)
    for j in range(rows):
        log = tile.scales[j] + log_of(tile.octaves[j])
        far += 0 if abs(log) < limit or log == nothing else 1
        far += 0 if abs(tile.h[j]) < ends(x).large else 1
        tile.logs[j] = log
    return far
