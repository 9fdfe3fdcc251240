"""Log scales of rows that are not sums of their entries' squares alone."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.held import far_form, far_scale, finite, largest_log
from kernattn.ops._numba.memory import aligned, pad, tile_rows, whole, window
from kernattn.ops._numba.products import panel_product
from kernattn.ops._numba.registers import lanes

__all__ = ["write_scales"]


@compiled
def write_scales(weights, centre, linear, factor_t, rank, x, scales, chunk, low, high):
    """Write w.x^2 + l.x - |F (x - c)|^2 / 2 of blocks low to high of `chunk` rows of x, flat (n, d).

    Parts without entries count as zeros; factor_t is F, of `rank` rows, transposed in panels. The parts of far rows are
    held.
    """
    x, weights, centre, linear, factor_t = whole(x), whole(weights), whole(centre), whole(linear), whole(factor_t)
    dim = x.size // scales.size
    size, row = tile_rows(chunk, x), pad(rank, lanes(x)) + lanes(x)
    packed, tile = aligned(size * dim, x), aligned(size * row, x)
    half, limit = x.dtype.type(0.5), largest_log(x)
    for first in range(low * chunk, min(high * chunk, scales.size), chunk):
        rows = min(chunk, scales.size - first)
        if rank > 0:
            for j in range(rows):
                source, target = window(x, (first + j) * dim, dim), window(packed, j * dim, dim)
                for i in range(dim):
                    target[i] = source[i] - centre[i]
            panel_product(packed, rows, dim, factor_t, 0, rank, tile, row)
        for j in range(rows):
            source, y = window(x, (first + j) * dim, dim), window(tile, j * row, rank)
            total = squares = x.dtype.type(0)
            for i in range(weights.size):
                total += weights[i] * source[i] * source[i]
            for i in range(linear.size):
                total += linear[i] * source[i]
            for a in range(rank):
                squares += y[a] * y[a]
            total -= half * squares
            if not abs(total) < limit and finite(source):
                total = far_scale(weights, source, limit) + far_form(centre, linear, factor_t, rank, source, limit)
            scales[first + j] = total
