r"""Causal linear attention whose keys fade: array operations around gated attention, and their cotangents.

``decayed(way, q, k, v, q_spec, k_spec, state, key_mask, segment_ids, g, gk)`` -> (out, normaliser, state), as those of
`causal`; `way` finds the implementation of the gated op beside an array. The log decay of a token is the sum of g
(..., n) and gk (..., n, M), at most 0 each, -inf allowed, None for 0; they have leading axes of their own.

With c_j the log scale of a key's features, sums are kept in units of :math:`e^{L_i}`, :math:`L_i = \max(L_{i-1} + g_i,
c_i)`; beside a huge value c_i counts as a power of two more, so that no sum overflows. Then :math:`\phi(k_i) e^{-L_i}`
and the decay :math:`e^{g_i + L_{i-1} - L_i}` are at most 1, and what is left is gated attention with the values beside
a column of ones, of which the outputs are the quotient. They do not depend on L, so no gradient flows into it:
numerators and normalisers z have the cotangents :math:`[g, -g^T o] / z`, and those of logs between units are those of g
and gk.
"""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.bridge import stop_gradient
from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, widest, zero_masked
from kernattn._arrays.shapes import broadcast
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import Normaliser, PeakedSum, before_rounding, finite, lowered_values, quotient, rounded
from kernattn.ops import gated, gated_vjp
from kernattn.ops.dispatch import Around
from kernattn.ops.features.reference import features_of_side
from kernattn.ops.features_vjp.reference import pull_back
from kernattn.ops.gated.reference import log_decays, segment_starts
from kernattn.ops.record import Way


class Lowered(NamedTuple):
    """Means as the gated op takes them, and how that comes of features, decays and states."""

    given: tuple[Any, ...]
    queries: ScaledFeatures
    keys: ScaledFeatures
    factors: tuple[Array, Array]  # of the features of queries and keys, (..., n, M | 1) each
    fades: Array  # (..., n, c), where a log between units has the gradient of g and gk
    last: Array  # (..., c), the unit of the sums after the last token


def decayed(way: Way, *given: Any) -> tuple[Array, Normaliser, PeakedSum]:
    """Return the means of all tokens, their normalisers in a unit of each row, and the sums after the last token."""
    read, normaliser, sums = _read(way, given)
    return quotient(namespace(v=given[2]), read, given[2].dtype), normaliser, sums


def decayed_and_unrounded(way: Way, *given: Any) -> tuple[Array, Normaliser, PeakedSum, Array]:
    """Return what `decayed` does, and the means before they were rounded."""
    read, normaliser, sums = _read(way, given)
    xp, dtype = namespace(v=given[2]), given[2].dtype
    whole = quotient(xp, read, read.s.dtype)
    return rounded(xp, whole, dtype), normaliser, sums, before_rounding(xp, whole, dtype)


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # rows may hold infinities, and BLAS sets flags at will
def _read(way: Way, given: tuple[Any, ...]) -> tuple[PeakedSum, Normaliser, PeakedSum]:
    """Return what queries read, its normalisers, and the sums after the last token."""
    means = _lower(*given)
    wide = means.given[2]
    read, after = way(gated.OP, wide)(*means.given)
    xp, z = namespace(read=read), read[..., -1]
    last = xp.broadcast_to(means.last, (*after.shape[:-2], *means.last.shape[-1:]))
    sums = in_units(xp, PeakedSum(after[..., :-1], after[..., -1], last), means.keys.log_scale.shape[-1])
    return PeakedSum(read[..., :-1], z, z), Normaliser(xp.zeros_like(z), z), sums


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def pull_decayed(
    way: Way, given: tuple[Any, ...], kept: tuple[Any, ...], cotangents: tuple[Any, ...], learn: bool
) -> tuple[Any, ...]:
    """Return the cotangents of q, k, v, the state, g and gk."""
    q, k, v, q_spec, k_spec, state, key_mask, _, g, gk = given
    (out, normaliser), (of_out, of_sums) = kept, cotangents
    means = _lower(*given)
    xp, wide = namespace(v=v), means.given[2]
    of_read = _of_quotient(xp, xp.astype(out, wide.dtype, copy=False), normaliser.z[..., None], of_out)
    of_means = way(gated_vjp.OP, wide)(*means.given, of_read, _of_ended(xp, means, of_sums))
    dq, dk, dv, d_scalar, d_channels, *_, before = of_means
    logs = d_scalar[..., None] if d_channels is None else d_channels
    logs = zero_masked(xp.where(means.fades, logs, xp.zeros_like(logs)), key_mask)

    def of_rows(x: Array, spec: MapSpec, features: ScaledFeatures, factor: Array, dx: Array, scale: bool) -> Any:
        f = dx * factor * features.values if KINDS[spec.kind].per_feature else dx * factor
        f = xp.where(dx == 0, xp.zeros_like(f), f)
        return pull_back(x, spec, sum_onto(xp, f, (*x.shape[:-1], f.shape[-1])), scale, learn)

    def onto(x: Array | None, terms: Array) -> Array | None:
        return None if x is None else xp.astype(sum_onto(xp, terms, tuple(x.shape)), x.dtype, copy=False)

    of_q: MapCotangent = of_rows(q, q_spec, means.queries, means.factors[0], dq, False)
    of_k: MapCotangent = of_rows(k, k_spec, means.keys, means.factors[1], dk, True)
    of_state = None
    if state is not None:
        of_state = PeakedSum(before[..., :-1], before[..., -1], xp.zeros_like(state.peak))
    of_v = onto(v, zero_masked(dv[..., :-1], key_mask))
    return of_q, of_k, of_v, of_state, onto(g, xp.sum(logs, axis=-1)), onto(gk, logs)


OP = Around("decayed", gated.OP.backends, decayed)


def _lower(
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    g: Array | None,
    gk: Array | None,
) -> Lowered:
    xp, dtype = namespace(v=v), accumulation_dtype(namespace(v=v), v)
    q_spec = None if q_spec is None else q_spec.unscaled  # what is common to a row cancels, as records know
    queries, keys = features_of_side(q, q_spec), features_of_side(k, k_spec, key_mask)
    values, log_scale = keys
    if key_mask is not None:
        values, v = zero_masked(values, key_mask), zero_masked(v, key_mask)
        log_scale = xp.where(key_mask[..., None], log_scale, -xp.inf)
    m = max(values.shape[-1], log_scale.shape[-1])
    decay = log_decays(xp, g, gk, key_mask, xp.zeros_like(log_scale[..., :1]))
    if segment_ids is not None:
        decay = xp.where(segment_starts(xp, segment_ids)[..., None], -xp.inf, decay)
    columns = m if decay.shape[-1] > 1 else log_scale.shape[-1]
    before = None if state is None else xp.broadcast_to(state.peak, (*state.peak.shape[:-1], columns))
    wide = xp.astype(v, dtype, copy=False)
    _, _, rise = lowered_values(xp, wide, -1)
    unit, left, fades = _units(xp, decay, log_scale + rise, before)
    shown = xp.isfinite(unit)
    lift = xp.where(shown, unit, xp.zeros_like(unit))
    rows = queries.log_scale + xp.where(shown, unit, -xp.inf)
    top = stop_gradient(finite(xp, xp.max(rows, axis=-1, keepdims=True)))
    of_queries = xp.exp(xp.astype(rows - top, dtype))
    of_keys = xp.exp(xp.astype(xp.where(shown, log_scale - lift, -xp.inf), dtype))
    phi_q, phi_k = (xp.broadcast_to(x, (*x.shape[:-1], m)) for x in (queries.values * of_queries, values * of_keys))
    wide = xp.concat([wide, xp.ones_like(wide[..., :1])], axis=-1)
    sums = None if state is None else xp.concat([state.s, state.z[..., None]], axis=-1)
    scalar, channels = (left[..., 0], None) if columns == 1 else (None, left)
    given = phi_q, phi_k, wide, scalar, channels, None, None, None, 1.0, False, sums, None, segment_ids
    last = xp.astype(unit[..., -1, :], dtype)
    return Lowered(given, queries, ScaledFeatures(values, log_scale), (of_queries, of_keys), fades, last)


def _of_quotient(xp: ModuleType, out: Array, z: Array, g: Array) -> Array:
    """Return the cotangents of numerators and normalisers, none where there is no normaliser or no cotangent."""
    g = xp.astype(g, out.dtype, copy=False)
    none = (z == 0) | xp.all(g == 0, axis=-1, keepdims=True)
    g = xp.where(none, xp.zeros_like(g), g / xp.where(none, xp.ones_like(z), z))
    return xp.concat([g, -xp.sum(g * xp.where(none, xp.zeros_like(g), out), axis=-1, keepdims=True)], axis=-1)


def _of_ended(xp: ModuleType, means: Lowered, cotangent: PeakedSum | None) -> Array | None:
    """Return the cotangent of the op's last sums from that of the sums in the units of the state."""
    if cotangent is None:
        return None
    last = xp.broadcast_to(means.last, (*cotangent.z.shape[:-1], *means.last.shape[-1:]))
    _, factor = _to_units(xp, last, means.keys.log_scale.shape[-1])
    both = xp.concat([cotangent.s, cotangent.z[..., None]], axis=-1)
    return xp.where(factor[..., None] == 0, xp.zeros_like(both), factor[..., None] * both)


def _units(xp: ModuleType, decay: Array, scale: Array, before: Array | None) -> tuple[Array, Array, Array]:
    """Return L (..., n, c); g_i + L_{i-1} - L_i, the log decay between units, with the gradient of g; and where it has.

    The largest is taken over sums of logs, and of no differences; in float64, so that large logs cost no digits.
    """
    wide = widest(xp, scale)
    logs, top = (xp.astype(stop_gradient(x), wide) for x in xp.broadcast_arrays(decay, scale))
    lead = broadcast(top=tuple(top.shape[:-2]), before=() if before is None else tuple(before.shape[:-1]))
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


def in_units(xp: ModuleType, sums: PeakedSum, peaks: int) -> PeakedSum:
    """Return sums with so many peaks, one or that of each feature; sums of nothing are 0."""
    s, z, peak = sums
    unit, factor = _to_units(xp, peak, peaks)
    s = xp.where(factor[..., None] == 0, xp.zeros_like(s), factor[..., None] * s)
    return PeakedSum(s, xp.where(factor == 0, xp.zeros_like(z), factor * z), unit)


def _to_units(xp: ModuleType, peak: Array, peaks: int) -> tuple[Array, Array]:
    """Return so many peaks for sums that have others, and the factors to their units."""
    unit = xp.max(peak, axis=-1, keepdims=True) if peaks == 1 else peak
    return unit, xp.where(xp.isinf(peak), xp.zeros_like(peak), xp.exp(peak - finite(xp, unit)))
