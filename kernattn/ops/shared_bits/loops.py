"""Bits in common: some rows of y stay in the first-level cache while all rows of x meet them."""

import numpy as np

from kernattn.ops._numba.codegen.bits import ones
from kernattn.ops._numba.codegen.compile import compiled

ROOM = 2048  # words of y that stay


@compiled
def count_shared(x, y, out, low, high):
    """Write popcount(x_i & y_j) of rows low to high of x and all rows of y to out (n, k)."""
    words, some = x.shape[1], max(1, ROOM // x.shape[1])
    for first in range(0, y.shape[0], some):
        for i in range(low, high):
            for j in range(first, min(first + some, y.shape[0])):
                total = np.int64(0)
                for a in range(words):
                    total += ones(x[i, a] & y[j, a])
                out[i, j] = total
