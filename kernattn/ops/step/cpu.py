"""One token by Numba: features of all heads, then one pass over the sums of each."""

from __future__ import annotations

from operator import is_

import numpy as np

from kernattn._array import Array
from kernattn.ops._numba.crew import crew
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.layout import NO_MASK, accumulation, flat, plain
from kernattn.ops.features.sides import tokens
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures
from kernattn.ops.step.loops import advance

__all__ = ["step"]

SECONDS_PER_SUM = 2e-10  # for each number of the state; decides when to share


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
    """Return the output of the token and the state after it."""
    dtype, e = accumulation(v), v.shape[-1]
    query, key = tokens(q, k, q_spec, k_spec, dtype)
    who = heads(query.lead, key.lead, v.shape[:-1])
    count, groups = who.reads.shape[:2]
    wide = out if out is not None and out.dtype == dtype else np.empty((*who.out_lead, e), dtype)
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, who.lead), bool)
    old = [x if x.flags.carray else np.array(x, order="C") for x in state]
    in_place = reuse_state and all(map(is_, old, state))
    new = old if in_place else [np.empty(x.shape, dtype) for x in old]
    arguments = (
        query.phi.arrays, key.phi.arrays, e,
        query.x, key.x, plain(v, dtype), key.given, mask, who.table, groups,
        *[x.ravel() for x in old], in_place, wide.ravel(), *[x.ravel() for x in new],
    )  # fmt: skip
    advance(*arguments, *crew(count, state.s.size * groups * SECONDS_PER_SUM), count)
    after = PeakedSum(*new)
    if out is None:
        return wide if v.dtype == dtype else wide.astype(v.dtype), after
    if wide is not out:
        out[...] = wide
    return out, after
