"""Cotangents that flow back through ops: what they are of, and how they meet broadcast axes."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, largest, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._sums.peaked import PeakedSum, finite
from kernattn._sums.units import SAFE


class MapCotangent(NamedTuple):
    """Cotangents of rows that went through a map, and of the numbers of its `MapSpec` where these are learnt."""

    x: Array  # (..., n, d), in the dtype of the rows
    omega: Array | None = None  # (D, d), in the accumulation dtype, as the two others
    offset: Array | None = None  # (M,)
    row_weights: Array | None = None  # (d,)


def with_column(xp: ModuleType, s: Array, z: Array) -> Array:
    """Return s (..., r, e) with z (..., r) as one more column."""
    return xp.concat([s, z[..., None]], axis=-1)


def sum_onto(xp: ModuleType, y: Array, shape: tuple[int, ...], take: Callable[..., Array] | None = None) -> Array:
    """Return y summed, or what `take` does, over the axes along which an array of that shape was broadcast to it."""
    if tuple(y.shape) == shape:
        return y
    full = broadcast(y=tuple(y.shape), shape=shape)
    if tuple(y.shape) != full:  # a view would be read-only
        y = xp.broadcast_to(y, full)
    padded = (1,) * (y.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(padded) if size != y.shape[axis])
    return xp.reshape((take or xp.sum)(y, axis=axes, keepdims=True) if axes else y, shape)


def weight(xp: ModuleType, log: Array) -> Array:
    """Return e^log, held where only logs without digits after the point can lead: over a normaliser it is near 1."""
    return xp.exp(xp.minimum(log, xp.full_like(log, SAFE[dtype_name(log)][1])))


def onto_sums(xp: ModuleType, cotangent: PeakedSum, sums: PeakedSum) -> PeakedSum:
    """Return cotangents of sums summed to their shape; beside peaks, +inf where there are none."""
    alike = tuple(cotangent.s.shape) == tuple(sums.s.shape) and tuple(cotangent.peak.shape) == tuple(sums.peak.shape)
    if alike and xp is np and np.isfinite(cotangent.peak).all():
        return cotangent
    peak = sum_onto(xp, cotangent.peak, tuple(sums.peak.shape), xp.min)
    factor = xp.exp(finite(xp, peak) - cotangent.peak)
    s, z = (
        sum_onto(xp, cotangent.s * factor[..., None], tuple(sums.s.shape)),
        sum_onto(xp, cotangent.z * factor, tuple(sums.z.shape)),
    )
    return PeakedSum(s, z, finite(xp, peak))


def in_units_of(sums: PeakedSum, cotangent: PeakedSum) -> PeakedSum:
    """Return cotangents of `sums`, told beside a peak of their own, in the units of that of the sums; its own is 0."""
    xp = namespace(s=cotangent.s)
    factor = weight(xp, finite(xp, sums.peak) - cotangent.peak)
    factor = xp.where(xp.isinf(sums.peak), xp.zeros_like(factor), factor)
    limit = largest(sums.s.dtype)
    with np.errstate(over="ignore"):
        s, z = (xp.clip(x, -limit, limit) for x in (cotangent.s * factor[..., None], cotangent.z * factor))
    s, z = (xp.astype(x, sums.s.dtype, copy=False) for x in (s, z))
    return PeakedSum(s, z, xp.zeros_like(sums.peak))
