"""Cotangents that flow back through ops: what they are of, and how they meet broadcast axes."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np

from kernattn._array import Array

__all__ = ["MapCotangent", "beside", "onto"]


class MapCotangent(NamedTuple):
    """Cotangents of rows that went through a map, and of the numbers of its `MapSpec` where these are learnt."""

    x: Array  # (..., n, d), in the dtype of the rows
    omega: Array | None = None  # (D, d), in the accumulation dtype, as the two others
    offset: Array | None = None  # (M,)
    row_weights: Array | None = None  # (d,)


def beside(xp: ModuleType, s: Array, z: Array) -> Array:
    """Return s (..., r, e) with z (..., r) as one more column."""
    return xp.concat([s, z[..., None]], axis=-1)


def onto(xp: ModuleType, y: Array, shape: tuple[int, ...]) -> Array:
    """Return y summed over the axes along which an array of that shape was broadcast to it."""
    y = xp.broadcast_to(y, np.broadcast_shapes(tuple(y.shape), shape))
    padded = (1,) * (y.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(padded) if size < y.shape[axis])
    return xp.reshape(xp.sum(y, axis=axes, keepdims=True) if axes else y, shape)
