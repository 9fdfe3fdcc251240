"""Minwise hashes in NumPy, some features at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.shapes import strips
from kernattn.ops.minwise.words import Words, keyed, signs

ROOM = 2**22  # hashes at a time


def minwise(starts: NDArray[np.int64], members: Words, keys: Words, out: NDArray[Any]) -> None:
    """Write a sign of the least hash of every set for every feature, (n, M)."""
    for some in strips(keys.shape[1], ROOM // len(members)):
        least = np.minimum.reduceat(keyed(members, keys[:, some]), starts[:-1], axis=0)
        out[:, some] = signs(least, keys.shape[1] ** -0.5, out.dtype)
