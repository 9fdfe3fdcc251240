"""Queries against a summary of keys in array-API."""

from __future__ import annotations

from typing import Any

from kernattn._array import Array, namespace
from kernattn.ops.features.reference import computed
from kernattn.ops.peaked import LogNormaliser, PeakedSum, log_normaliser, quotient, read
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["attend"]


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, LogNormaliser | None]:
    """Return the output of each query, and its normaliser where it is wanted."""
    xp = namespace(s=state.s)
    total = read(xp, computed(q, q_spec), state)
    return quotient(xp, total, dtype), log_normaliser(xp, total) if normaliser else None
