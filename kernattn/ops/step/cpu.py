"""One token by Numba: features of all heads, then one pass over the sums of each."""

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._numba.helper_threads import board_for
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, token_rows, written
from kernattn.ops.features.sides import tokens
from kernattn.ops.step.loops import advance

SECONDS_PER_SUM = 2e-10  # for each number of the state; decides when to share


def step(
    state: PeakedSum, q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None,
    k_spec: MapSpec | None, key_mask: Array | None, reuse_state: bool, out: Array | None = None,
) -> tuple[Array, PeakedSum]:  # fmt: skip
    dtype = accumulation(v)
    (phi_q, queries, q_lead), (phi_k, keys, k_lead), given = tokens(q, k, q_spec, k_spec, dtype)
    who = heads(q_lead, k_lead, v.shape[:-1])
    out = np.empty((*who.out_lead, v.shape[-1]), v.dtype) if out is None else out
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, who.lead), bool)
    s, z, peak = state
    before = state
    if not (s.flags.carray and z.flags.carray and peak.flags.carray):
        before = PeakedSum(*(np.array(x, order="C") for x in state))
    after = before
    if not reuse_state or before is not state:
        after = PeakedSum(np.empty(s.shape, dtype), np.empty(z.shape, dtype), np.empty(peak.shape, dtype))
    old = _flat(before)
    advance(
        phi_q, phi_k, (queries, keys, token_rows(v, dtype), given), mask, who.table,
        old, written(out, dtype), old if after is before else _flat(after),
        *board_for(len(who.k), out.size * z.shape[-1] * SECONDS_PER_SUM),
    )  # fmt: skip
    return out, after


def _flat(sums: PeakedSum) -> tuple[Array, Array, Array]:
    s, z, peak = sums
    return s.ravel(), z.ravel(), peak.ravel()
