"""One token by Numba: features of all heads, then one pass over the sums of each."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.layout import NO_MASK, Side, accumulation, flat, heads, side
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
    queries, keys = _token(q, spec, dtype), _token(k, spec, dtype)
    plan, who = keys.plan, heads(queries.lead, keys.lead, v.shape[:-1])
    count, groups = who.reads.shape[:2]
    wide = out if out is not None and out.dtype == dtype else np.empty((*who.out_lead, e), dtype)
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, who.lead), bool)
    new = state
    in_place = reuse_state and all(x.flags.carray for x in state)
    if not in_place:
        new = PeakedSum(
            np.empty(state.s.shape, dtype), np.empty(state.z.shape, dtype), np.empty(state.peak.shape, dtype)
        )
    arguments = (
        plan.kind, plan.omega_t, plan.weights, plan.offset, plan.amplitude,
        plan.dim, plan.frequencies, plan.features, e,
        queries.x, keys.x, flat(v, dtype), keys.given, mask, who.table, groups,
        flat(state.s, dtype), flat(state.z, dtype), flat(state.peak, dtype), in_place,
        wide.reshape(-1), new.s.reshape(-1), new.z.reshape(-1), new.peak.reshape(-1),
    )  # fmt: skip
    share(partial(advance, *arguments), count, new.s.size * groups * SECONDS_PER_SUM)
    if out is not None and wide is not out:
        out[...] = wide
    return wide.astype(v.dtype, copy=False) if out is None else out, new


def _token(x: Any, spec: MapSpec | None, dtype: np.dtype[Any]) -> Side:
    """Return a token as a sequence of one."""
    if spec is None:
        return side(ScaledFeatures(x.values[..., None, :], x.log_scale[..., None, :]), None, dtype)
    return side(x[..., None, :], spec, dtype)
