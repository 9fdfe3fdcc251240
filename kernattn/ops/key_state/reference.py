"""The summary of keys in array-API."""

from __future__ import annotations

from kernattn._array import Array, accumulation_dtype, namespace
from kernattn.ops.features.reference import computed
from kernattn.ops.peaked import PeakedSum, summarise
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["key_state"]


def key_state(k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None) -> PeakedSum:
    """Return the sum over all keys that key_mask admits."""
    xp = namespace(v=v)
    return summarise(xp, computed(k, k_spec), xp.astype(v, accumulation_dtype(xp, v), copy=False), key_mask)
