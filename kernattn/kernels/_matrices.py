"""Kernel matrices put together: from blocks of rows, and with a diagonal of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from kernattn._arrays.namespaces import Array, placement


def join_blocks(xp: ModuleType, parts: Iterator[Array], n: int) -> Array:
    """Return the matrix (..., n, k) of blocks of its rows."""
    first = next(parts)
    if first.shape[-2] == n:
        return first
    if not isinstance(first, np.ndarray):
        return xp.concat([first, *parts], axis=-2)
    matrix, low = np.empty((*first.shape[:-2], n, first.shape[-1]), first.dtype), 0
    for part in itertools.chain([first], parts):  # each in turn, where the one before it lay in the cache
        matrix[..., low : low + part.shape[-2], :] = part
        low += part.shape[-2]
    return matrix


def set_diagonal(xp: ModuleType, matrix: Array, entries: Array, begin: int = 0) -> Array:
    """Return a matrix (..., n, k) with the entries (..., n) on its diagonal that begins at column `begin`."""
    n, k = matrix.shape[-2:]
    if isinstance(matrix, np.ndarray):
        own = np.arange(max(0, -begin), min(n, k - begin))
        matrix[..., own, begin + own] = entries[..., own]
        return matrix
    i, j = xp.arange(n, **placement(matrix)), xp.arange(k, **placement(matrix))
    return xp.where(i[:, None] + begin == j[None, :], entries[..., None], matrix)
