r"""Causal linear attention whose keys fade: a decay is a shift of the peak that sums are kept in units of.

With c_j the log scale of a key's features, sums are kept in units of :math:`e^{L_i}`, :math:`L_i = \max(L_{i-1} + g_i,
c_i)`. Then :math:`\phi(k_i) e^{-L_i}` and the decay :math:`e^{g_i + L_{i-1} - L_i}` are at most 1, and what is left is
gated attention with the values beside a column of ones, of which the outputs are the quotient. They do not depend on L,
so no gradient flows into it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.bridge import stop_gradient
from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, unmasked, widest
from kernattn._arrays.shapes import broadcast
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.peaked import LinearState, PeakedSum, finite, quotient
from kernattn.attention._check_states import check_state
from kernattn.attention._gated import check_gates
from kernattn.attention._lowering import computed_features
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.gated import OP as GATED
from kernattn.ops.gated.reference import log_decays, segment_starts


def with_leads(k: Array, g: Array | None, gk: Array | None) -> Array:
    """Return the key of a token with the leading axes of its decays, g (...) and gk (..., M), too."""
    gates = {name: x for name, x in (("g", g), ("gk", gk)) if x is not None}
    xp, own = namespace(k=k, **gates), tuple(k.shape[:-1])
    if k.ndim < 1 or (gk is not None and gk.ndim < 1):
        shapes = {name: tuple(x.shape) for name, x in {"k": k, **gates}.items()}
        raise ShapeError(f"k must be (..., d), and gk (..., M); got shapes {shapes}")
    leads = {name: tuple(x.shape if name == "g" else x.shape[:-1]) for name, x in gates.items()}
    lead = broadcast(k=own, **leads)
    return k if lead == own else xp.broadcast_to(k, (*lead, *k.shape[-1:]))


class Decayed(NamedTuple):
    """Means as gated attention: what its op takes, and how that comes of features, decays and states."""

    given: tuple[Any, ...]
    queries: ScaledFeatures
    keys: ScaledFeatures
    factors: tuple[Array, Array]  # of the features of queries and keys, (..., n, M | 1) each
    fades: Array  # (..., n, c), where a log between units has the gradient of g and gk
    last: Array  # (..., c), the unit of the sums after the last token


@np.errstate(over="ignore")
def decayed_causal(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    g: Array | None,
    gk: Array | None,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    backend: str | None,
) -> tuple[Array, LinearState]:
    """Return outputs and the last state of arguments that have passed but for the decays and the state."""
    means = as_gated(q, k, v, phi, g, gk, state, key_mask, segment_ids)
    out, after = GATED.implementation(means.given[2], backend)(*means.given)
    return means_of(out, v.dtype), ended_state(means, after, phi.fingerprint)


def as_gated(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    g: Array | None,
    gk: Array | None,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> Decayed:
    """Return what the gated op takes for decayed means."""
    m = phi.num_features_of(k.shape[-1])
    leads = check_gates({"g": g, "gk": gk}, q, m)
    lead = broadcast(k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]), **leads)
    broadcast(q=tuple(q.shape[:-2]), keys=lead)
    xp, dtype = namespace(v=v), accumulation_dtype(namespace(v=v), v)
    if state is not None:
        check_state(state, phi, q, xp.broadcast_to(k, (*lead, *k.shape[-2:])), v, 2)
    queries, keys = computed_features(phi, q, unmasked(k, key_mask))
    values, log_scale = keys
    if key_mask is not None:
        values, v = unmasked(values, key_mask), unmasked(v, key_mask)
        log_scale = xp.where(key_mask[..., None], log_scale, -xp.inf)
    decay = log_decays(xp, g, gk, key_mask, xp.zeros_like(log_scale[..., :1]))
    if segment_ids is not None:
        decay = xp.where(segment_starts(xp, segment_ids)[..., None], -xp.inf, decay)
    columns = m if decay.shape[-1] > 1 else log_scale.shape[-1]
    before = None if state is None else xp.broadcast_to(state.peak, (*state.peak.shape[:-1], columns))
    unit, left, fades = _units(xp, decay, log_scale, before)
    shown = xp.isfinite(unit)
    lift = xp.where(shown, unit, xp.zeros_like(unit))
    rows = queries.log_scale + xp.where(shown, unit, -xp.inf)
    top = stop_gradient(finite(xp, xp.max(rows, axis=-1, keepdims=True)))
    of_queries = xp.exp(xp.astype(rows - top, dtype))
    of_keys = xp.exp(xp.astype(xp.where(shown, log_scale - lift, -xp.inf), dtype))
    phi_q, phi_k = (xp.broadcast_to(x, (*x.shape[:-1], m)) for x in (queries.values * of_queries, values * of_keys))
    wide = xp.astype(v, dtype, copy=False)
    wide = xp.concat([wide, xp.ones_like(wide[..., :1])], axis=-1)
    sums = None if state is None else xp.concat([state.s, state.z[..., None]], axis=-1)
    scalar, channels = (left[..., 0], None) if columns == 1 else (None, left)
    given = phi_q, phi_k, wide, scalar, channels, None, None, None, 1.0, False, sums, None, segment_ids
    last = xp.astype(unit[..., -1, :], dtype)
    return Decayed(given, queries, keys, (of_queries, of_keys), fades, last)


def means_of(out: Array, dtype: Any) -> Array:
    """Return the means of what the gated op read: numerators (..., n, e) beside a column of normalisers."""
    return quotient(namespace(out=out), PeakedSum(out[..., :-1], out[..., -1], out[..., -1]), dtype)


def ended_state(means: Decayed, after: Array, draw: int) -> LinearState:
    """Return the state that the sums after the last token are."""
    xp = namespace(after=after)
    last = xp.broadcast_to(means.last, (*after.shape[:-2], *means.last.shape[-1:]))
    sums = PeakedSum(after[..., :-1], after[..., -1], last)
    return LinearState(*_in_units(xp, sums, means.keys.log_scale.shape[-1]), draw)


@np.errstate(over="ignore")
def decayed_state(
    state: LinearState, q: Array, g: Array | None, gk: Array | None, key_mask: Array | None
) -> LinearState:
    """Return the state of a token q whose keys have faded, by e^g (...) and by e^gk (..., M) for each feature."""
    xp = namespace(s=state.s)
    rows = {"g": None if g is None else g[..., None], "gk": None if gk is None else gk[..., None, :]}
    check_gates(rows, q[..., None, :], state.z.shape[-1])
    decay = log_decays(xp, g, gk, key_mask, xp.zeros_like(state.z[..., :1]))
    lead = np.broadcast_shapes(tuple(decay.shape[:-1]), tuple(state.z.shape[:-1]))
    sums = PeakedSum(
        xp.broadcast_to(state.s, (*lead, *state.s.shape[-2:])),
        xp.broadcast_to(state.z, (*lead, *state.z.shape[-1:])),
        xp.broadcast_to(state.peak + decay, (*lead, max(state.peak.shape[-1], decay.shape[-1]))),
    )
    return LinearState(*_in_units(xp, sums, state.peak.shape[-1]), state.fingerprint)


def _units(xp: ModuleType, decay: Array, scale: Array, before: Array | None) -> tuple[Array, Array, Array]:
    """Return L (..., n, c); g_i + L_{i-1} - L_i, the log decay between units, with the gradient of g; and where it has.

    The largest is taken over sums of logs, and of no differences; in float64, so that large logs cost no digits.
    """
    wide = widest(xp, scale)
    logs, top = (xp.astype(stop_gradient(x), wide) for x in xp.broadcast_arrays(decay, scale))
    lead = np.broadcast_shapes(tuple(top.shape[:-2]), () if before is None else tuple(before.shape[:-1]))
    begun = (
        xp.zeros_like(top[..., :1, :]) - xp.inf
        if before is None
        else xp.astype(stop_gradient(before), wide)[..., None, :]
    )
    logs, top = (xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (logs, top))
    begun = xp.broadcast_to(begun, (*lead, 1, top.shape[-1]))
    top = xp.concat([begun, top], axis=-2)
    total = xp.concat([xp.zeros_like(begun), logs], axis=-2)
    if isinstance(top, np.ndarray):
        top = top.copy()
        for i in range(1, top.shape[-2]):
            np.maximum(top[..., i, :], top[..., i - 1, :] + total[..., i, :], out=top[..., i, :])
    else:
        shift = 1
        while shift < top.shape[-2]:
            earlier = xp.concat([xp.zeros_like(top[..., :shift, :]) - xp.inf, top[..., :-shift, :]], axis=-2)
            top = xp.maximum(top, earlier + total)
            total = total + xp.concat([xp.zeros_like(total[..., :shift, :]), total[..., :-shift, :]], axis=-2)
            shift *= 2
    last, unit = top[..., :-1, :], top[..., 1:, :]
    shown = xp.isfinite(unit) & xp.isfinite(last) & xp.isfinite(logs)
    none = xp.zeros_like(unit)
    rise = xp.where(shown, xp.where(shown, last, none) - xp.where(shown, unit, none), none)
    left = xp.where(shown, decay, -xp.inf) + rise
    above = stop_gradient(xp.where(left > 0, left, none))  # of rounding
    return unit, xp.astype(left - above, scale.dtype), shown


def _in_units(xp: ModuleType, sums: PeakedSum, peaks: int) -> PeakedSum:
    """Return sums with so many peaks, one or that of each feature; sums of nothing are 0."""
    s, z, peak = sums
    unit, factor = to_units(xp, peak, peaks)
    s = xp.where(factor[..., None] == 0, xp.zeros_like(s), factor[..., None] * s)
    return PeakedSum(s, xp.where(factor == 0, xp.zeros_like(z), factor * z), unit)


def to_units(xp: ModuleType, peak: Array, peaks: int) -> tuple[Array, Array]:
    """Return so many peaks for sums that have others, and the factors to their units."""
    unit = xp.max(peak, axis=-1, keepdims=True) if peaks == 1 else peak
    return unit, xp.where(xp.isinf(peak), xp.zeros_like(peak), xp.exp(peak - finite(xp, unit)))
