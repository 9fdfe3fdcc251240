"""The way back by Numba: the loops of causal and of exact attention, or float64 where these would answer otherwise."""

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._numba.tiles.layout import accumulation, has_bits, narrow, settled
from kernattn.ops.block_softmax_vjp.cpu import in_floats as exact_in_floats
from kernattn.ops.block_softmax_vjp.rows_loops import PRECISE
from kernattn.ops.causal_vjp.cpu import in_floats
from kernattn.ops.hybrid import reference as forward
from kernattn.ops.hybrid_vjp import reference
from kernattn.ops.hybrid_vjp.lagged import pull_lagged, row_scales
from kernattn.ops.hybrid_vjp.parts import Cotangents, Given, Made, Parts, pull_parts
from kernattn.ops.key_state_vjp.walks import loops_take
from kernattn.ops.recast import blocks_of, row_dots, settled_cotangents, widen

PARTS = Parts(in_floats, exact_in_floats, row_scales, row_dots)


@without_flags
def hybrid_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, scale: float, plan: Plan, within: Plan,
    causal: bool, state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None,
    out: Array, normaliser: Normaliser, near: Array, near_lse: Array, g: Array, after: PeakedSum | None, learn: bool,
) -> Cotangents:  # fmt: skip
    """Return the cotangents of what the op took."""
    given = Given(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias)
    made = Made(out, normaliser, near, near_lse, g, after)
    cotangents = None
    if loops_take(q_spec, k_spec) and _ordinary(q, k, scale, near_lse, normaliser.peak):
        cotangents = pull_lagged(given, made, learn) or pull_parts(PARTS, given, made, learn)
    if cotangents is None or not _is_finite(cotangents):
        cotangents = _recomputed(given, made, learn)
    dq, dk, dv, before, of_bias = cotangents
    if given.state is not None and before is not None:
        before = PeakedSum(*(narrow(x, y.dtype) for x, y in zip(before, given.state, strict=True)))
    if given.near_bias is not None and of_bias is not None:
        of_bias = of_bias.astype(given.near_bias.dtype, copy=False)
    dq, dk = settled_cotangents(dq, given.q), settled_cotangents(dk, given.k)
    return dq, dk, settled(dv, given.v.dtype), before, of_bias


def _ordinary(q: Array, k: Array, scale: float, lse: Array, peak: Array) -> bool:
    """Are all scores far from the ends of floats, and have their sums digits after the point?

    Of other rows the loops of exact attention compute normalisers of their own, without what the features have.
    """
    kind = np.finfo(accumulation(q))
    *tops, most, more = (_largest(x) for x in (q, k, lse, peak))
    reach = abs(scale) * tops[0] * max(tops[1], 1) * q.shape[-1]
    usual = scale == 0 or kind.tiny <= abs(scale)
    return bool(usual and reach < float(kind.max) / 64 and max(most, more) < PRECISE / kind.eps / 2)


def _is_finite(cotangents: Cotangents) -> bool:
    """Are those of rows finite? Weights of what a row does not see may overflow, and 0 times them is NaN."""
    dq, dk, dv, *_ = cotangents
    return all(bool(np.isfinite(x).all()) for x in (dq.x, dk.x, dv))


def _largest(x: Array) -> float:
    """Return the largest size of a finite number."""
    return max(_largest_of(some) for (some,) in blocks_of(x)) if has_bits(x, accumulation(x)) else _largest_of(x)


def _largest_of(x: Array) -> float:
    top = max(float(np.max(x)), -float(np.min(x)))
    return top if np.isfinite(top) else float(np.max(np.abs(x), initial=0, where=np.isfinite(x)))


def _recomputed(given: Given, made: Made, learn: bool) -> Cotangents:
    """Return the cotangents by array operations in float64, of outputs that are computed once more."""
    wide = Given(*widen(np.dtype(np.float64), *given))
    out, normaliser, _, near, lse, _ = forward.hybrid(*wide, True)
    g, after = widen(np.dtype(np.float64), made.g, made.after)
    return reference.hybrid_vjp(*wide, out, normaliser, near, lse, g, after, learn)
