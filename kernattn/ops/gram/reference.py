"""Sums of outer products of features in array-API."""

from __future__ import annotations

from kernattn._array import Array, accumulation_dtype, namespace
from kernattn.ops.features.reference import features
from kernattn.ops.spec import MapSpec

__all__ = ["gram"]


def gram(x: Array, y: Array, spec: MapSpec | None) -> tuple[Array, Array]:
    """Return phi^T phi (..., M, M) and phi^T y (..., M, c)."""
    xp = namespace(x=x, y=y)
    dtype = accumulation_dtype(xp, x)
    x, y = (xp.astype(a, dtype, copy=False) for a in (x, y))
    phi = x if spec is None else features(x, spec)
    across = xp.matrix_transpose(phi)  # (..., M, n)
    return xp.matmul(across, phi), xp.matmul(across, y)
