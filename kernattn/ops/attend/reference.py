"""Queries against a summary of keys in array-API."""

from typing import Any

from kernattn._arrays.namespaces import Array, namespace
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser, PeakedSum, quotient, read, row_normaliser
from kernattn.ops.features.reference import relative


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, Normaliser | None]:
    """Return the output of each query, and its normaliser where it is wanted."""
    xp = namespace(s=state.s)
    queries, own = relative(q, q_spec, normaliser)
    total = read(xp, queries, state)
    out = quotient(xp, total, dtype)
    if not normaliser:
        return out, None
    return out, row_normaliser(xp, total.z, total.peak, own)
