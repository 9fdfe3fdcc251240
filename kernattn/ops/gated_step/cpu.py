"""One token of gated linear attention by Numba: where tokens erase, a pass reads the state; another renews it.

With a small state this file takes as long as the loop: what shapes tell is kept, and each array is looked at once.
"""

from functools import partial

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, worth_sharing
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, no_rows, nothing, room, rows, written
from kernattn.ops.gated.cpu import NOWHERE, Layout, Plan, flat_state, plan_for, sum_of_logs
from kernattn.ops.gated.loops import Given
from kernattn.ops.gated.tokens_loops import run_tokens

Shape = tuple[int, ...] | None
"""The shape of an array, None where there is none."""


def gated_step(
    state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None,
    read: Array | None, write: Array | None, scale: float, l2_normalise: bool, key_mask: Array | None,
    reuse_state: bool, out: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    dtype = accumulation(v)
    none, logs = no_rows(dtype), g
    if gk is not None:
        logs, g = gk if g is None else sum_of_logs(g, gk, dtype), None
    gates = None if logs is None else logs.shape, None if beta is None else beta.shape
    plan = _plan_for(
        q.shape, k.shape, v.shape, *gates, g is None, None if read is None else read.shape,
        None if write is None else write.shape, state is not None, dtype.itemsize,
    )  # fmt: skip
    strength = none[0] if beta is None else flat(beta, dtype)
    pair = (none, none) if read is None or write is None else (rows(read, dtype), rows(write, dtype))
    given = Given(
        rows(k, dtype), rows(v, dtype), none if logs is None else rows(logs, dtype), strength, *pair,
        NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, plan.lead), bool), NO_MASK, l2_normalise,
    )  # fmt: skip
    before = nothing(dtype) if state is None else flat_state(state, plan, dtype)
    after = state if reuse_state and state is not None and state.flags.carray else room(plan.after, dtype)
    out = np.empty(plan.out, v.dtype) if out is None else out
    work = (
        plan.sizes, given, rows(q, dtype), before, plan.table, plan.reads, dtype.type(scale), written(out, dtype),
        after.reshape(-1),
    )  # fmt: skip
    if not worth_sharing(plan.seconds):
        run_tokens(*work, 0, len(plan.table))
    else:
        share(partial(run_tokens, *work), len(plan.table), plan.seconds)
    return out, after


@keep_while_small
def _plan_for(
    q: Shape, k: Shape, v: Shape, logs: Shape, beta: Shape, of_channels: bool, read: Shape, write: Shape, begun: bool,
    itemsize: int,
) -> Plan:  # fmt: skip
    """Return the plan of a sequence of one, with the shape of its output without the axis of tokens."""
    layouts = _rows_of(q), _rows_of(k), _rows_of(v), _rows_of(logs) if of_channels else _numbers_of(logs)
    plan = plan_for((*layouts, _numbers_of(beta), _rows_of(read), _rows_of(write)), begun, itemsize)
    return plan._replace(out=(*plan.out[:-2], plan.out[-1]))


def _rows_of(shape: Shape) -> Layout:
    return NOWHERE if shape is None else ((*shape[:-1], 1, shape[-1]), None)


def _numbers_of(shape: Shape) -> Layout:
    return NOWHERE if shape is None else ((*shape, 1, 1), None)
