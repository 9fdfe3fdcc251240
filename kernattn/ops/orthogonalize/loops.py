"""Orthonormal rows by block Gram-Schmidt: ROWS rows at a time, so that nearly all of it is products of tiles."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, lanes
from kernattn.ops._numba.tiles.products import FULL, product


@inner
def _dot(q, i, j, d):
    """Return the product of two rows, which begin at i and j."""
    a, b = window(q, i, d), window(q, j, d)
    total = a[0] * b[0]
    for k in range(1, d):
        total += a[k] * b[k]
    return total


@inner
def _among_themselves(q, first, rows, line, d, passes, least, weights):
    """Make a few rows orthonormal; NaN instead of one that is shorter than least."""
    for i in range(first, first + rows):
        row = window(q, i * line, d)
        for _ in range(passes):
            for j in range(first, i):
                weights[j - first] = _dot(q, i * line, j * line, d)
            for j in range(first, i):
                weight, other = weights[j - first], window(q, j * line, d)
                for k in range(d):
                    row[k] -= weight * other[k]
        length = np.sqrt(_dot(q, i * line, i * line, d))
        if length >= least:
            for k in range(d):
                row[k] /= length
        else:
            for k in range(d):
                row[k] = np.nan


@inner
def _load(x, at, d, row):
    """Copy a row, its largest entry scaled to 1: squares then neither overflow nor vanish."""
    given = window(x, at, d)
    largest = abs(given[0])
    for k in range(1, d):
        largest = max(largest, abs(given[k]))
    for k in range(d):
        row[k] = given[k] / largest


@compiled
def write_frames(x, r, d, out, low, high):
    """Write orthonormal rows of blocks low to high of x, flat (count, r, d), to out.

    Each group of rows meets the rows before it twice, both times followed by Gram-Schmidt inside the group: block
    classical Gram-Schmidt with reorthogonalisation (Barlow and Smoktunowicz 2013).
    """
    x, out = whole(x), whole(out)
    line, column = pad(d, lanes(x)) + lanes(x), pad(pad(r, ROWS), lanes(x)) + lanes(x)
    q, down = aligned(pad(r, ROWS) * line, x), aligned(d * column, x)  # down = -q^T
    weights = aligned(ROWS * column, x)
    for block in range(low, high):
        start = block * r * d
        for first in range(0, r, ROWS):
            rows = min(ROWS, r - first)
            for i in range(first, first + rows):
                _load(x, start + i * d, d, window(q, i * line, d))
            for turn in range(2):
                product(q, first * line, line, 1, down, 0, column, weights, 0, column, rows, first, d, False, FULL)
                product(weights, 0, column, 1, q, 0, line, q, first * line, line, rows, d, first, True, FULL)
                _among_themselves(q, first, rows, line, d, 2 - turn, 0.5 * turn, weights)
            for i in range(first, first + rows):
                row, target = window(q, i * line, d), window(out, start + i * d, d)
                for k in range(d):
                    target[k] = row[k]
                    down[k * column + i] = -row[k]
