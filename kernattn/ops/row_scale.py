"""The log scale that all features of a row share, by array operations."""

from __future__ import annotations

from types import ModuleType

from kernattn._array import Array, constant, zeros
from kernattn.ops.spec import MapSpec

__all__ = ["row_scale"]


def row_scale(xp: ModuleType, x: Array, spec: MapSpec) -> Array:
    """Return the log scale r of rows x (..., n, d) of an accumulation dtype, (..., n, 1)."""
    dtype, weights, form = x.dtype, spec.row_weights, spec.row_form
    row = zeros(xp, (*x.shape[:-1], 1), dtype, x)
    if weights is not None:
        row = xp.sum(constant(xp, weights, dtype, x) * x * x, axis=-1, keepdims=True)
    if form is not None:
        y = xp.matmul(x - constant(xp, form.centre, dtype, x), constant(xp, form.factor.T, dtype, x))
        linear = xp.matmul(x, constant(xp, form.linear[:, None], dtype, x))
        row = row + (linear - xp.sum(y * y, axis=-1, keepdims=True) / 2)
    return row
