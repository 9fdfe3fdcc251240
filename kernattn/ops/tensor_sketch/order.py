"""The order of frequencies: that in which a fast transform leaves them, so that no loop has to sort them."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64, frozen


@cache
def roots(points: int) -> Float64:
    """Return exp(-2 pi i j / M) for all j, (M, 2)."""
    angle = 2 * np.pi * np.arange(points) / points
    return frozen(np.stack([np.cos(angle), -np.sin(angle)], axis=1))


def radices(points: int) -> list[int]:
    """Return the radices of a transform's passes: 8, and for the last one what is left, at most 16.

    One of radix 16 that also turns its results would not fit the registers.
    """
    steps = []
    while points > 16:
        steps.append(8)
        points //= 8
    return [*steps, points]


def decimate_order(points: int) -> NDArray[np.int64]:
    """Return which frequency the transform leaves in the place of each point: digits in reversed order."""
    frequency, step = np.zeros(1, dtype=np.int64), 1
    for radix in radices(points):
        frequency = (frequency[:, None] + step * np.arange(radix)).ravel()
        step *= radix
    return frequency


def order(num_features: int) -> NDArray[np.int64]:
    """Return the frequencies f in 1 ... (M - 1) // 2 in the order of the features."""
    if num_features >= 4 and num_features & (num_features - 1) == 0:
        return decimate_order(num_features // 2)[1:]
    return np.arange(1, (num_features + 1) // 2)
