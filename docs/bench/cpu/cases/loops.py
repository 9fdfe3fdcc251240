"""A product of tiles in cache, over and over in one compiled loop."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.registers import LINE, ROWS
from kernattn.ops._numba.tiles.products import FULL, product


def room_of(m: int, n: int, dtype: str) -> Array:
    """Return what `ours` writes m x n sums into."""
    return np.zeros((m + ROWS) * (n + 2 * LINE), dtype)


@compiled
def ours(a, b, c, m, n, inner, loops):
    """Add a product of m x inner and inner x n numbers so often."""
    for _ in range(loops):
        product(a, 0, inner, 1, b, 0, n, c, 0, n, m, n, inner, False, FULL)


@compiled
def blas(a, b, c, loops):
    """Write the product so often."""
    for _ in range(loops):
        np.dot(a, b, c)
