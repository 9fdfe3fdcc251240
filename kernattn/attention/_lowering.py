"""Between what the public functions take and what the ops do: states and peaked sums, maps and specs."""

from collections.abc import Callable
from typing import Any

from kernattn._arrays.namespaces import Array, namespace, without_flags, zero_masked
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import LinearState, PeakedSum, finite
from kernattn._sums.units import balance
from kernattn.features import FeatureMap
from kernattn.ops.dispatch import Op

Lowered = tuple[Any, Any, MapSpec | None, MapSpec | None]


def sums_of(state: LinearState) -> PeakedSum:
    """Return a state without the draw that made it."""
    return PeakedSum(state.s, state.z, state.peak)


def state_of(sums: PeakedSum, draw: int) -> LinearState:
    """Return sums with the draw that made them."""
    return LinearState(sums.s, sums.z, sums.peak, draw)


def lowered_queries(phi: FeatureMap, q: Array, peaks: int) -> tuple[Array | ScaledFeatures, MapSpec | None]:
    """Return queries (..., n, d) beside their spec, or their features beside None, for keys of `peaks` log scales."""
    spec = phi.query_spec
    if spec is not None and _scales(q, spec) == peaks:
        return phi._rows(q), spec
    return _match_scales(_compute_features(phi, q, False), peaks), None


def lowered_keys(phi: FeatureMap, k: Array, mask: Array | None = None) -> tuple[Array | ScaledFeatures, MapSpec | None]:
    """Return keys (..., n, d) beside their spec, or the features beside None of those that a mask (..., n) shows."""
    if phi.key_spec is not None:
        return phi._rows(k, mask), phi.key_spec
    return _compute_features(phi, zero_masked(k, mask), True), None


def lowered(phi: FeatureMap, q: Array, k: Array, mask: Array | None = None) -> Lowered:
    """Return queries and keys as the ops take them, and the two specs."""
    keys, k_spec = lowered_keys(phi, k, mask)
    if k_spec is not None and k_spec is phi.query_spec:
        return phi._rows(q), keys, k_spec, k_spec
    queries, q_spec = lowered_queries(phi, q, _scales(keys, k_spec))
    return queries, keys, q_spec, k_spec


def computed_features(phi: FeatureMap, q: Array, k: Array) -> tuple[ScaledFeatures, ScaledFeatures]:
    """Return the features of queries and of keys."""
    keys = _compute_features(phi, k, True)
    return _match_scales(_compute_features(phi, q, False), keys.log_scale.shape[-1]), keys


def lowered_token(phi: FeatureMap, q: Array, k: Array, mask: Array | None = None) -> Lowered:
    """Return the query and the key of a token, (..., d), as the ops take them, and the two specs."""
    spec = phi.key_spec
    if spec is not None and spec is phi.query_spec:
        return phi._rows(q), phi._rows(k, mask), spec, spec
    mask = None if mask is None else mask[..., None]
    queries, keys, q_spec, k_spec = lowered(phi, q[..., None, :], k[..., None, :], mask)
    return _one(queries), _one(keys), q_spec, k_spec


def implementation(op: Op, like: Array, backend: str | None, *sides: Any) -> Callable[..., Any]:
    """Return the function of an op on these lowered queries or keys: the reference where no compiled loop holds them.

    Loops know a log scale beside signed values, or the logs of positive features, but not a sign beside every log.
    Sums and products of signed and exponential maps have both.
    """
    if backend is None:
        for x in sides:
            if type(x) is ScaledFeatures and x.values.shape[-1] > 1 and x.log_scale.shape[-1] > 1:
                backend = "reference"
    return op.implementation(like, backend)


def _one(x: Array | ScaledFeatures) -> Array | ScaledFeatures:
    """Return a sequence of one token without its axis of tokens."""
    return ScaledFeatures(*(part[..., 0, :] for part in x)) if isinstance(x, ScaledFeatures) else x[..., 0, :]


@without_flags
def _compute_features(phi: FeatureMap, x: Array, key: bool) -> ScaledFeatures:
    """Return the computed features of queries or keys, near 1 in every row."""
    return balance(phi._scaled_features(x, key))


def _scales(x: Any, spec: MapSpec | None) -> int:
    """Return how many log scales a row has: one, or one for every feature."""
    if spec is None:
        return int(x.log_scale.shape[-1])
    return spec.num_features_of(x.shape[-1]) if spec.per_feature else 1


def _match_scales(queries: ScaledFeatures, peaks: int) -> ScaledFeatures:
    """Return queries with one log scale for a row, or one for every feature, as their keys have them."""
    values, log_scale = queries
    if log_scale.shape[-1] == peaks:
        return queries
    xp = namespace(values=values)
    if peaks > 1:
        shape = (*log_scale.shape[:-1], peaks)
        return ScaledFeatures(xp.broadcast_to(values, shape), xp.broadcast_to(log_scale, shape))
    peak = xp.max(log_scale, axis=-1, keepdims=True)
    return ScaledFeatures(values * xp.exp(log_scale - finite(xp, peak)), peak)
