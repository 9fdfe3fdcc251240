"""One token in array-API: a summary of one key, merged into the state and read by one query."""

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, zero_masked
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum, merge, quotient, read, summarise
from kernattn.ops.features.reference import scaled


def step(
    state: PeakedSum,
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    key_mask: Array | None,
    reuse_state: bool,
    out: Array | None = None,
) -> tuple[Array, PeakedSum]:
    """Return the output of the token and the state after it; of the arguments, only `out` is ever written to."""
    xp = namespace(v=v)
    queries = _one_row(q, None if q_spec is None else q_spec.unscaled)
    keys = _one_row(k if k_spec is None else zero_masked(k, key_mask), k_spec)
    mask = None if key_mask is None else key_mask[..., None]
    value = xp.astype(v, accumulation_dtype(xp, v), copy=False)[..., None, :]  # (..., 1, e)
    state = merge(xp, state, summarise(xp, keys, value, mask))
    attended = quotient(xp, read(xp, queries, state), v.dtype)[..., 0, :]  # (..., e)
    if out is None:
        return attended, state
    out[...] = attended
    return out, state


def _one_row(x: Any, spec: MapSpec | None) -> ScaledFeatures:
    if spec is None:
        return ScaledFeatures(x.values[..., None, :], x.log_scale[..., None, :])
    return scaled(x[..., None, :], spec)
