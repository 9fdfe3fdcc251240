"""Between what the public functions take and what the ops do: states and peaked sums, maps and specs."""

from __future__ import annotations

from kernattn._array import Array
from kernattn.features import FeatureMap
from kernattn.ops.peaked import LinearState, PeakedSum
from kernattn.ops.spec import ScaledFeatures

__all__ = ["lowered", "lowered_token", "state_of", "sums_of"]


def sums_of(state: LinearState) -> PeakedSum:
    """Return a state without the draw that made it."""
    return PeakedSum(state.s, state.z, state.peak)


def state_of(sums: PeakedSum, draw: int) -> LinearState:
    """Return sums with the draw that made them."""
    return LinearState(sums.s, sums.z, sums.peak, draw)


def lowered(phi: FeatureMap, **arrays: Array) -> list[Array | ScaledFeatures]:
    """Return what the ops take: the arrays themselves beside a spec, else their features."""
    if phi.spec is not None:
        return list(arrays.values())
    return [phi.scaled_query(x) if name == "q" else phi.scaled_key(x) for name, x in arrays.items()]


def lowered_token(phi: FeatureMap, q: Array, k: Array) -> list[Array | ScaledFeatures]:
    """Return the same of a token, (..., d)."""
    if phi.spec is not None:
        return [q, k]
    both = lowered(phi, q=q[..., None, :], k=k[..., None, :])
    return [ScaledFeatures(x.values[..., 0, :], x.log_scale[..., 0, :]) for x in both]
