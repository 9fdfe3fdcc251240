"""Cotangents of gated linear attention by Numba."""

from functools import partial

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._runtime.parallel import share
from kernattn._sums.cotangents import sum_onto
from kernattn.ops._numba.tiles.layout import (
    accumulation,
    flat,
    narrow,
    no_rows,
    nothing,
    room_like,
    rows,
    unwritten,
    written,
)
from kernattn.ops.gated.cpu import begun_anew, flat_state, forgets_rows, work_of
from kernattn.ops.gated_vjp import loops, plain_loops, reference, tokens_loops
from kernattn.ops.gated_vjp.reference import Cotangents

by_arrays = without_flags(reference.gated_vjp)


def gated_vjp(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array | None, after: Array | None,
) -> Cotangents:  # fmt: skip
    key_mask = reference.heard_tokens(
        np, out, after, key_mask, reference.lead_of(k, v, g, gk, beta, read, write)
    )  # fmt: skip
    if read is None and forgets_rows(g, gk, key_mask, state, k, v):
        return by_arrays(
            q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids, out, after
        )
    dtype = accumulation(v)
    plan, given, queries = work_of(q, k, v, g, gk, beta, read, write, l2_normalise, state, key_mask, segment_ids)
    n, d, e, channels, _ = plan.sizes
    unwanted, of_keys = unwritten(dtype), (*plan.lead, n, d)
    dq = room_like(q, (*plan.out[:-1], d), dtype)
    dk, dv = room_like(k, of_keys, dtype), room_like(v, (*plan.lead, n, e), dtype)
    logs = unwanted
    if g is not None:
        logs = np.empty((*plan.lead, n, channels), dtype)
    elif gk is not None:
        logs = room_like(gk, (*plan.lead, n, channels), dtype)
    strength = unwanted if beta is None else np.empty((*plan.lead, n), dtype)
    d_read, d_write = (unwanted if x is None else room_like(x, of_keys, dtype) for x in (read, write))
    d_state = unwanted if state is None else np.empty(plan.after, dtype)
    before = flat_state(state, plan, dtype)
    g_out, g_after = no_rows(dtype) if out is None else rows(out, dtype), nothing(dtype)
    if after is not None:
        g_after = flat(after, dtype)
    reads = queries, before, g_out, g_after, plan.table, plan.reads, dtype.type(scale)
    if read is None:
        given = begun_anew(given, plan, g, gk, key_mask)
        cotangents = loops.Found(*(written(x, dtype) for x in (dq, dk, dv, logs, strength, d_state)))
        loop = plain_loops.pull_plain if beta is None and channels == 1 else loops.pull_gates
        pull = partial(loop, plan.sizes, given, *reads, cotangents)
    else:
        into = (written(x, dtype) for x in (dq, dk, dv, logs, d_read, d_write, d_state))
        pull = partial(tokens_loops.pull_tokens, plan.sizes, given, *reads, tokens_loops.Found(*into))
    share(pull, len(plan.table), 3 * plan.seconds)

    def back(y: Array, x: Array | None) -> Array | None:
        return None if x is None else narrow(sum_onto(np, y, x.shape), x.dtype)

    d_g = None if g is None else back(logs[..., 0] if logs.shape[-1] == 1 else np.sum(logs, axis=-1), g)
    return (
        back(dq, q), back(dk, k), back(dv, v), d_g, None if gk is None else back(logs, gk), back(strength, beta),
        back(d_read, read), back(d_write, write), back(d_state, state),
    )  # fmt: skip
