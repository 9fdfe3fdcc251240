"""One token beside a window by Numba: what leaves it enters the sums, and one loop joins both parts."""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._arrays.replay import Extreme
from kernattn._maps.spec import MapSpec
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, narrow, nothing, room
from kernattn.ops.attend.cpu import attend
from kernattn.ops.recast import widen
from kernattn.ops.step.cpu import step
from kernattn.ops.window_step.loops import join_window


@without_flags
def window_step(
    state: PeakedSum, k_before: Array, v_before: Array, present: Array, q: Array, k: Array, v: Array, q_spec: MapSpec,
    k_spec: MapSpec, scale: float, key_mask: Array | None, near_bias: Array | None,
) -> tuple[Any, ...]:  # fmt: skip
    dtype, given, lead = accumulation(v), v.dtype, present.shape[:-1]
    (w, d), e = k_before.shape[-2:], v.shape[-1]
    who = heads(q.shape[:-1], k.shape[:-1], v.shape[:-1])
    leaves, mask = present[..., 0], NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, lead), bool)
        leaves = leaves & mask.reshape(lead)
    wide_q, wide_k, wide_v, old_k, old_v = widen(dtype, q, k, v, k_before, v_before)
    _, after = step(state, wide_q, old_k[..., 0, :], old_v[..., 0, :], q_spec, k_spec, leaves, False)
    far, z = attend(after, wide_q[..., None, :], q_spec, dtype, True)
    assert z is not None
    bias = nothing(dtype) if near_bias is None else flat(np.broadcast_to(near_bias, who.out_lead), dtype)
    kept = room(k_before.shape, dtype), room(v_before.shape, dtype), np.empty(present.shape, bool)
    out = room((*who.out_lead, e), dtype)
    ordinary = join_window(
        (w, d, e, len(who.k), len(who.q) // len(who.k)), dtype.type(scale),
        tuple(flat(x, dtype) for x in (wide_q, wide_k, wide_v)),
        (flat(old_k, dtype), flat(old_v, dtype), flat(present, bool)), mask, bias, who.table,
        flat(far, dtype), flat(z.peak, dtype), flat(z.z, dtype), tuple(x.reshape(-1) for x in kept), out.reshape(-1),
    )  # fmt: skip
    if not ordinary:
        raise Extreme("a score or an output is no number, or near the end of floats")
    return narrow(out, given), after, *(narrow(x, given) for x in kept[:2]), kept[2]
