"""One token by Numba: features of all heads, then one pass over the sums of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.layout import NO_MASK, Side, accumulation, flat, heads, side
from kernattn.ops._numba.token import advance
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["step"]

SECONDS_PER_SUM = 1.5e-10  # for each number of the state; decides when to share


def step(
    state: PeakedSum,
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    spec: MapSpec | None,
    key_mask: Array | None,
    reuse_state: bool,
    out: Array | None = None,
) -> tuple[Array, PeakedSum]:
    """Return the output of the token and the state after it."""
    dtype = accumulation(v)
    queries, keys = _token(q, spec, dtype), _token(k, spec, dtype)
    plan, e = keys.plan, v.shape[-1]
    who = heads(queries.lead, keys.lead, v.shape[:-1])
    count, groups, _ = who.reads.shape
    wide = out if out is not None and out.dtype == dtype else np.empty((*who.out_lead, e), dtype)
    in_place = reuse_state and all(x.flags.c_contiguous and x.flags.writeable for x in state)
    new = state if in_place else PeakedSum(*(np.empty(x.shape, dtype) for x in state))
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, who.lead), bool)
    value, (s, z, peak) = flat(v, dtype), (flat(x, dtype) for x in state)

    def slab(low: int, high: int) -> None:
        advance(
            plan.kind, plan.omega_t, plan.weights, plan.offset, plan.amplitude,
            plan.dim, plan.frequencies, plan.features, e,
            queries.x, keys.x, value, keys.given, mask, who.k, who.v, who.q, who.out, groups,
            s, z, peak, in_place, wide.reshape(-1), *(x.reshape(-1) for x in new), low, high,
        )  # fmt: skip

    share(slab, count, state.s.size * groups * SECONDS_PER_SUM)
    if out is None:
        return wide.astype(v.dtype, copy=False), new
    if wide is not out:
        out[...] = wide
    return out, new


def _token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return a token as a sequence of one."""
    if spec is None:
        return side(ScaledFeatures(x.values[..., None, :], x.log_scale[..., None, :]), None, dtype)
    return side(x[..., None, :], spec, dtype)
