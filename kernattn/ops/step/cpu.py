"""One token by Numba: features of all heads, then one pass over the sums of each."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array
from kernattn.ops._numba.crew import crew
from kernattn.ops._numba.layout import NO_MASK, accumulation, flat, heads, plain, token
from kernattn.ops._numba.token import advance
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["step"]

SECONDS_PER_SUM = 2e-10  # for each number of the state; decides when to share


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
    dtype, e = accumulation(v), v.shape[-1]
    queries, keys = token(q, spec, dtype), token(k, spec, dtype)
    plan, who = keys.plan, heads(queries.lead, keys.lead, v.shape[:-1])
    count, groups = who.reads.shape[:2]
    wide = out if out is not None and out.dtype == dtype else np.empty((*who.out_lead, e), dtype)
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, who.lead), bool)
    s, z, peak = state
    old = new = plain(s, dtype), plain(z, dtype), plain(peak, dtype)
    in_place, after = reuse_state and s.flags.carray and z.flags.carray and peak.flags.carray, state
    if not in_place:
        after = PeakedSum(np.empty(s.shape, dtype), np.empty(z.shape, dtype), np.empty(peak.shape, dtype))
        new = after.s.reshape(-1), after.z.reshape(-1), after.peak.reshape(-1)
    arguments = (
        plan.kind, plan.omega_t, plan.weights, plan.offset, plan.amplitude,
        plan.dim, plan.frequencies, plan.features, e,
        queries.x, keys.x, plain(v, dtype), keys.given, mask, who.table, groups, *old, in_place, wide.reshape(-1), *new,
    )  # fmt: skip
    advance(*arguments, *crew(count, s.size * groups * SECONDS_PER_SUM), count)
    if out is None:
        return wide if v.dtype == dtype else wide.astype(v.dtype), after
    if wide is not out:
        out[...] = wide
    return out, after
