"""Products of kernel matrices: a block of entries in the first-level cache, multiplied there and never written."""

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, TALL, lanes
from kernattn.ops._numba.tiles.products import FULL, product, transpose
from kernattn.ops.pairwise.loops import apply_form, measures

FIRST, LAST, BEGIN, END, MIRRORED = range(5)
"""Columns of jobs: first row and the one after the last, the same of columns, and 1 for a job and its mirror image."""


@inner
def _add_columns(tile, row, height, i, n, count, j, k, v, c, out, other, mirrored):
    """Add tile v to out (c, n), v (c, k); where mirrored, tile^T v to other (c, row)."""
    for column in range(c):
        for r in range(height):
            u, w = window(tile, r * row, count), window(v, column * k + j, count)
            total = tile.dtype.type(0)
            for a in range(count):
                total += u[a] * w[a]
            out[column * n + i + r] += total
            if mirrored:
                target, weight = window(other, column * row, count), v[column * k + i + r]
                for a in range(count):
                    target[a] += u[a] * weight


@inner
def _add_rows(tile, row, height, i, count, j, v, c, out, other, sums, mirrored):
    """Add tile v to out (n, c), v (k, c); where mirrored, tile^T v to other (row, c)."""
    product(tile, 0, row, 1, v, j * c, c, sums, 0, c, height, c, count, False, FULL)
    _add(sums, 0, height * c, out, i * c)
    if mirrored:
        product(tile, 0, 1, row, v, i * c, c, other, 0, c, count, c, height, True, FULL)


@inner
def _add(source, at, count, target, to):
    """Add `count` numbers of one flat array to another."""
    x, y = window(source, at, count), window(target, to, count)
    for a in range(count):
        y[a] += x[a]


@compiled
def add_products(
    x, y, v, out, n, k, dim, c, narrow, jobs, most, measure, function, number, degree, chain, columns, low, high
):
    """Add sum_j f(m(x_i, y_j)) v_j to out for jobs low to high, with `columns` of y at a time.

    A job has at most `most` rows.
    v is (c, k) and out (c, n) where narrow; else (k, c) and (n, c), c whole vectors.
    """
    x, y, v, out = whole(x), whole(y), whole(v), whole(out)
    wide, tall = 2 * lanes(x), pad(most, TALL)
    panels, packed = aligned(columns * dim, x), aligned(tall * dim, x)
    room = pad(TALL, ROWS)  # a product reads and writes whole blocks of rows
    tile, base = aligned(room * columns, x), aligned(columns, x)
    sums, other = aligned(room * c, x), aligned(columns * c, x)
    for job in range(low, high):
        first, last, end, mirrored = jobs[job, FIRST], jobs[job, LAST], jobs[job, END], jobs[job, MIRRORED] > 0
        for i in range(first, last, TALL):
            transpose(x, i * dim, dim, min(TALL, last - i), dim, packed, (i - first) * dim, TALL)
        for begin in range(jobs[job, BEGIN], end, columns):
            count = min(columns, end - begin)
            for j in range(0, count, wide):
                transpose(y, (begin + j) * dim, dim, min(wide, count - j), dim, panels, j * dim, wide)
            if mirrored:
                other[:] = 0
            for i in range(first, last, TALL):
                height, some = min(TALL, last - i), window(packed, (i - first) * dim, TALL * dim)
                measures(measure, some, panels, dim, chain, tile, columns, count)
                for r in range(height):
                    apply_form(window(tile, r * columns, count), function, number, degree, base)
                if narrow:
                    _add_columns(tile, columns, height, i, n, count, begin, k, v, c, out, other, mirrored)
                else:
                    _add_rows(tile, columns, height, i, count, begin, v, c, out, other, sums, mirrored)
            if mirrored and narrow:
                for column in range(c):
                    _add(other, column * columns, count, out, column * n + begin)
            elif mirrored:
                _add(other, 0, count * c, out, begin * c)
