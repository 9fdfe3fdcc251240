"""Features of rows whose projections the matrix unit takes; all that follows is the loops' of floats."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.halves import round_off
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.far.clamped import within
from kernattn.ops._numba.matrix.instructions import configure, release, unit_room
from kernattn.ops._numba.matrix.linear import FAINT
from kernattn.ops._numba.matrix.parts import FAR, is_far
from kernattn.ops._numba.matrix.products import BLOCK
from kernattn.ops._numba.matrix.projections import pack_frequencies, project
from kernattn.ops._numba.tiles.chunk import row_scales
from kernattn.ops._numba.tiles.finish import finish_features
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.rows import as_read, wide_rows
from kernattn.ops.features.loops import span_row


@compiled
def write_features_tiles(arrays, x, given, out, told, no_mask, chunk, span, low, high):
    """Write features as `write_features` does, of rows and to rows of 16 bits.

    Rows that tiles cannot hold count as zeros in them, and are 1 in `told`: floats are to answer them.
    """
    phi, x, given = unpack(arrays), as_read(x), whole(given)
    _, bits, kind = out
    dim, features = phi.dim, phi.features
    row, size = span_row(span, given), tile_rows(chunk, given)
    tile, scales = aligned(size * row, given), aligned(size, given)
    wide, block = aligned(size * dim, given), aligned(chunk * features, given)
    held, unit = np.zeros(chunk, np.bool_), unit_room()
    operands = pack_frequencies(phi, pad(chunk, BLOCK), x, given, True)
    faint, far = given.dtype.type(FAINT), given.dtype.type(FAR)
    configure(unit)
    for first in range(low * chunk, min(high * chunk, told.size), chunk):
        rows = min(chunk, told.size - first)
        near, at = wide_rows(x, first * dim, rows * dim, wide)
        for j in range(rows):
            own = window(near, at + j * dim, dim)
            held[j] = within(own, phi.reach) and not is_far(own, faint, far)
            told[first + j] = not held[j]
        found, found_row = project(unit, operands, near, at, dim, rows, whole(held), 0)
        row_scales(phi.weights, near, rows, dim, dim, given, first, no_mask, 0, scales)
        for begin in range(0, phi.frequencies, span):
            count = min(span, phi.frequencies - begin)
            for j in range(rows):
                copy(found, j * found_row + begin, count, tile, j * row)
            finish_features(phi, tile, rows, row, begin, count, scales, whole(block), 0, features)
        round_off(block, 0, rows * features, bits, kind, first * features)
    release(unit)
