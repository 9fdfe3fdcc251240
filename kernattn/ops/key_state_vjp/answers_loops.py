"""What readers whose outputs were rounded find of these once more, in floats: the sums of their features times f."""

from kernattn.ops._numba.codegen.compile import inner_exact, phase
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store
from kernattn.ops._numba.far.clamped import ends
from kernattn.ops._numba.tiles.products import UPPER, product


@inner_exact
def _dot_columns(x, y, count, row, totals):
    """Set totals to the inner products of columns of two tiles (count, row)."""
    for i in range(0, row, lanes(x)):
        total = total_too = every(load(x, i), x.dtype.type(0))
        for a in range(0, count - 1, 2):
            total = total + load(x, a * row + i) * load(y, a * row + i)
            total_too = total_too + load(x, (a + 1) * row + i) * load(y, (a + 1) * row + i)
        if count % 2 > 0:
            total = total + load(x, (count - 1) * row + i) * load(y, (count - 1) * row + i)
        store(total + total_too, totals, i)


@phase
def answer(rows, writes, seen, h, at, step, checks, sums, tiles):
    """Take from h what readers find of their own rows: in the sums, of which f is read, and in pairs of this chunk.

    Return how many are too large.
    """
    size, right, totals, far = tiles.size, tiles.right, tiles.slopes, 0
    if seen or not writes:
        _dot_columns(tiles.weights, tiles.f, sums.features, size, totals)
    else:
        for i in range(rows):
            totals[i] = 0
    if writes:
        product(
            tiles.keys, 0, tiles.row_k, 1, tiles.weights, 0, size, tiles.met, 0, size, rows, rows, sums.features,
            False, UPPER,
        )  # fmt: skip
        for j in range(rows):  # readers from j on see writer j
            first, some = j * size + j, rows - j
            x, y, total = window(tiles.met, first, some), window(tiles.pairs, first, some), window(totals, j, some)
            for i in range(some):
                total[i] += x[i] * y[i]
    for i in range(rows):
        h[at + step * i] -= totals[i]
        right.h[i] -= totals[i] * right.factor[i]
        far += 1 if checks and not abs(h[at + step * i]) < ends(h).large else 0
    return far
