"""Queries against a summary of keys in array-API."""

from __future__ import annotations

from typing import Any

from kernattn._array import Array, namespace
from kernattn.ops.features.reference import scaled
from kernattn.ops.peaked import PeakedSum, quotient, read
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["attend"]


def attend(state: PeakedSum, q: Array | ScaledFeatures, spec: MapSpec | None, dtype: Any) -> Array:
    """Return the output of each query."""
    xp = namespace(s=state.s)
    queries = q if spec is None else scaled(q, spec)
    return xp.astype(quotient(xp, read(xp, queries, state)), dtype, copy=False)
