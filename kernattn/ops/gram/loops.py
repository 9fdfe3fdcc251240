"""Sums of outer products of features, which are never written to memory."""

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.products import FULL, UPPER, product, transpose
from kernattn.ops._numba.tiles.rows import as_read, read_rows, room_of, wide_rows
from kernattn.ops.features.loops import block_features, span_row

X, Y, FIRST, END = range(4)
"""Columns of runs: heads of x and of y; first row, one after the last."""
MIRRORED = 32
"""Rows of the lower triangle that are written at a time: a column of the upper one lies in a line of its own."""


@compiled
def add_outer(arrays, x, given, y, n, columns, runs, no_mask, gram, cross, chunk, span, low, high):
    """Write phi^T phi and phi^T y of runs low to high to gram (R, M, M) and cross (R, M, c).

    x and y are (floats, bits, kind). runs (R, 4) have the columns above.
    """
    phi = unpack(arrays)
    dim, features = phi.dim, phi.features
    x, given, y, like = as_read(x), whole(given), as_read(y), whole(given)
    row, size, wide = span_row(span, like), tile_rows(chunk, like), tile_rows(features, like)
    phi_row, y_row = pad(features, lanes(like)) + lanes(like), pad(max(columns, 1), lanes(like))
    tile, packed, scales = aligned(size * row, like), aligned(size * dim, like), aligned(size, like)
    block, values = aligned((size + 1) * phi_row, like), aligned(size * y_row, like)
    sums, others, room = aligned(wide * wide, like), aligned(wide * y_row, like), aligned(room_of(size * dim, x), like)
    for r in range(low, high):
        sums[:] = 0
        others[:] = 0
        for first in range(runs[r, FIRST], runs[r, END], chunk):
            rows, at_x, at_y = min(chunk, runs[r, END] - first), runs[r, X] * n + first, runs[r, Y] * n + first
            floats, at = wide_rows(x, at_x * dim, rows * dim, room)
            block_features(
                phi, floats, at, rows, given, at_x, no_mask, span,
                packed, tile, row, scales, block, 0, phi_row,
            )  # fmt: skip
            product(block, 0, 1, phi_row, block, 0, phi_row, sums, 0, wide, features, features, rows, True, UPPER)
            if columns > 0:
                read_rows(y, at_y * columns, rows, columns, no_mask, 0, values, y_row)
                product(block, 0, 1, phi_row, values, 0, y_row, others, 0, y_row, features, columns, rows, True, FULL)
        for a in range(0, features, MIRRORED):
            end = min(a + MIRRORED, features)
            transpose(sums, a, wide, end, end - a, gram, (r * features + a) * features, features)
        for a in range(features):
            copy(sums, a * wide + a, features - a, gram, (r * features + a) * features + a)
            for b in range(columns):
                cross[(r * features + a) * columns + b] = others[a * y_row + b]
