"""Which eigenfunctions are taken: those of the largest densities, or all of a grid."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64

Indices = NDArray[np.int64]

LARGEST = 2**22  # eigenfunctions that are looked at


def grid(sizes: tuple[int, ...], first: int) -> Indices:
    """Return all tuples of whole numbers from `first`, so many along each axis, (m, d); the last axis runs fastest."""
    axes = np.meshgrid(*(np.arange(first, first + size) for size in sizes), indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, len(sizes)).astype(np.int64)


def largest(count: int, d: int, first: int, value: Callable[[Indices], Float64]) -> Indices:
    """Return the `count` tuples of the largest values, the largest first; values fall along every axis.

    A grid grows along an axis until what lies beyond it is below the least that is taken.
    """
    sizes = np.full(d, max(2, int(np.ceil(count ** (1 / d))) + 1))
    while True:
        indices = grid(tuple(int(size) for size in sizes), first)
        values = value(indices)
        order = np.argsort(-values, kind="stable")[:count]
        least = values[order[-1]]
        ends = np.full((d, d), first) + np.diag(sizes)
        beyond = value(ends.astype(np.int64)) > least
        if not beyond.any() or np.prod(np.where(beyond, 2 * sizes, sizes).astype(float)) > LARGEST:
            return indices[order]
        sizes = np.where(beyond, np.ceil(1.5 * sizes), sizes).astype(int)
