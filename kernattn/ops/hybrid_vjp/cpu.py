"""The way back by Numba: the loops of causal and of exact attention, or float64 where these would answer otherwise."""

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._numba.tiles.layout import accumulation, narrow
from kernattn.ops.block_softmax_vjp.cpu import block_softmax_vjp
from kernattn.ops.block_softmax_vjp.rows_loops import PRECISE
from kernattn.ops.causal_vjp.cpu import in_loops
from kernattn.ops.hybrid import reference as forward
from kernattn.ops.hybrid_vjp import reference
from kernattn.ops.hybrid_vjp.lagged import pull_lagged, row_scales
from kernattn.ops.hybrid_vjp.parts import Cotangents, Given, Made, Parts, pull_parts
from kernattn.ops.key_state_vjp.walks import loops_take
from kernattn.ops.recast import narrow_cotangents, widen

PARTS = Parts(in_loops, block_softmax_vjp, row_scales)


@without_flags
def hybrid_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, scale: float, plan: Plan, within: Plan,
    causal: bool, state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None,
    out: Array, normaliser: Normaliser, near: Array, near_lse: Array, g: Array, after: PeakedSum | None, learn: bool,
) -> Cotangents:  # fmt: skip
    """Return the cotangents of what the op took."""
    given = Given(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias)
    made = Made(out, normaliser, near, near_lse, g, after)
    dtype = accumulation(given.v)
    cotangents = None
    if loops_take(given.q_spec, given.k_spec):
        q, k, v, out, g = widen(dtype, given.q, given.k, given.v, made.out, made.g)
        if _ordinary(q, k, given.scale, made.near_lse, made.normaliser.peak):
            wide = given._replace(q=q, k=k, v=v)
            given_made = made._replace(out=out, g=g)
            cotangents = pull_lagged(wide, given_made, learn) or pull_parts(PARTS, wide, given_made, learn)
    if cotangents is None or not _is_finite(cotangents):
        cotangents = _recomputed(given, made, learn)
    dq, dk, dv, before, of_bias = cotangents
    if given.state is not None and before is not None:
        before = PeakedSum(*(narrow(x, y.dtype) for x, y in zip(before, given.state, strict=True)))
    if given.near_bias is not None and of_bias is not None:
        of_bias = of_bias.astype(given.near_bias.dtype, copy=False)
    return narrow_cotangents(dq, given.q), narrow_cotangents(dk, given.k), narrow(dv, given.v.dtype), before, of_bias


def _ordinary(q: Array, k: Array, scale: float, lse: Array, peak: Array) -> bool:
    """Are all scores far from the ends of floats, and have their sums digits after the point?

    Of other rows the loops of exact attention compute normalisers of their own, without what the features have.
    """
    kind = np.finfo(q.dtype)
    *tops, most, more = (_largest(x) for x in (q, k, lse, peak))
    reach = abs(scale) * tops[0] * max(tops[1], 1) * q.shape[-1]
    usual = scale == 0 or kind.tiny <= abs(scale)
    return bool(usual and reach < kind.max / 64 and max(most, more) < PRECISE / kind.eps / 2)


def _is_finite(cotangents: Cotangents) -> bool:
    """Are those of rows finite? Weights of what a row does not see may overflow, and 0 times them is NaN."""
    dq, dk, dv, *_ = cotangents
    return all(bool(np.isfinite(x).all()) for x in (dq.x, dk.x, dv))


def _largest(x: Array) -> float:
    """Return the largest size of a finite number."""
    top = max(float(np.max(x)), -float(np.min(x)))
    return top if np.isfinite(top) else float(np.max(np.abs(x), initial=0, where=np.isfinite(x)))


def _recomputed(given: Given, made: Made, learn: bool) -> Cotangents:
    """Return the cotangents by array operations in float64, of outputs that are computed once more."""
    wide = Given(*widen(np.dtype(np.float64), *given))
    out, normaliser, _, near, lse = forward.hybrid(*wide, True)
    g, after = widen(np.dtype(np.float64), made.g, made.after)
    return reference.hybrid_vjp(*wide, out, normaliser, near, lse, g, after, learn)
