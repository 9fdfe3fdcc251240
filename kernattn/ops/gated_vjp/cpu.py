"""Cotangents of gated linear attention by Numba."""

from functools import partial

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn._sums.cotangents import onto
from kernattn.ops._numba.tiles.layout import accumulation, flat, nothing, unwritten
from kernattn.ops.gated.cpu import flat_state, work_of
from kernattn.ops.gated_vjp.loops import Found, pull_gates
from kernattn.ops.gated_vjp.reference import Cotangents
from kernattn.ops.gated_vjp.reference import gated_vjp as reference


def gated_vjp(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array | None, after: Array | None,
) -> Cotangents:  # fmt: skip
    """Leave the general rule to array operations."""
    if read is not None:
        return reference(
            q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids, out, after
        )
    dtype = accumulation(v)
    plan, given = work_of(q, k, v, g, gk, beta, l2_normalise, state, key_mask, segment_ids)
    n, d, e, channels, _ = plan.sizes
    none, unwanted = nothing(dtype), unwritten(dtype)
    dq = np.empty((*plan.out[:-1], d), dtype)
    dk, dv = np.empty((*plan.lead, n, d), dtype), np.empty((*plan.lead, n, e), dtype)
    logs = unwanted if g is None and gk is None else np.empty((*plan.lead, n, channels), dtype)
    strength = unwanted if beta is None else np.empty((*plan.lead, n), dtype)
    d_state = unwanted if state is None else np.empty(plan.after, dtype)
    found = Found(*(x.reshape(-1) for x in (dq, dk, dv, logs, strength, d_state)))
    queries, before = flat(q, dtype), flat_state(state, plan, dtype)
    g_out, g_after = none if out is None else flat(out, dtype), none if after is None else flat(after, dtype)
    reads = queries, before, g_out, g_after, plan.table, plan.reads, dtype.type(scale)
    share(partial(pull_gates, plan.sizes, given, *reads, found), len(plan.table), 3 * plan.seconds)

    def back(y: Array, x: Array | None) -> Array | None:
        return None if x is None else onto(np, y, x.shape).astype(x.dtype, copy=False)

    d_g = None if g is None else back(np.sum(logs, axis=-1), g)
    return (
        back(dq, q), back(dk, k), back(dv, v), d_g, None if gk is None else back(logs, gk), back(strength, beta),
        None, None, back(d_state, state),
    )  # fmt: skip
