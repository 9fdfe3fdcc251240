"""Chains of Hadamard transforms in array-API: k log2 p passes of sums and differences."""

from __future__ import annotations

from types import ModuleType

from kernattn._array import Array, Host, accumulation_dtype, constant, namespace, zeros
from kernattn.ops.features.reference import multiplied, scaled
from kernattn.ops.spec import MapSpec

__all__ = ["hadamard"]


def hadamard(x: Array, diagonals: Host, norms: Host, spec: MapSpec | None) -> Array:
    """Return the features, (..., n, M), in the dtype of x."""
    xp = namespace(x=x)
    dtype, out_dtype = accumulation_dtype(xp, x), x.dtype
    x = xp.astype(x, dtype, copy=False)
    p = diagonals.shape[-1]
    u = x
    if p > x.shape[-1]:
        u = xp.concat([x, zeros(xp, (*x.shape[:-1], p - x.shape[-1]), dtype, x)], axis=-1)
    u = u[..., None, :]  # (..., n, blocks, p)
    for link in range(diagonals.shape[1]):
        u = _transform(xp, u * constant(xp, diagonals[:, link], dtype, x)) * p**-0.5
    u = xp.reshape(u, (*u.shape[:-2], -1))[..., : len(norms)] * constant(xp, norms, dtype, x)
    if spec is not None:
        u = multiplied(scaled(x, spec, u), spec, x)
    return xp.astype(u, out_dtype, copy=False)


def _transform(xp: ModuleType, x: Array) -> Array:
    """Return H x along the last axis, H of ones and minus ones."""
    p, half = x.shape[-1], 1
    while half < p:
        pairs = xp.reshape(x, (*x.shape[:-1], p // (2 * half), 2, half))
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        x = xp.reshape(xp.stack([low + high, low - high], axis=-2), x.shape)
        half *= 2
    return x
