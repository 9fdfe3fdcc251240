"""Bits in common in NumPy, some rows at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.shapes import strips

ROOM = 2**20  # words at a time


def shared_bits(x: NDArray[np.uint64], y: NDArray[np.uint64], out: NDArray[Any]) -> None:
    """Write the numbers of bits that rows of x and rows of y have in common, (n, k)."""
    for here in strips(len(x), ROOM // y.size):
        out[here] = np.bitwise_count(x[here, None, :] & y).sum(axis=-1)
