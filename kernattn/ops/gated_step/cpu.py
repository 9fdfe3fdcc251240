"""One token of gated linear attention by Numba: where tokens erase, a pass reads the state; another renews it.

With a small state this file takes as long as the loop: what shapes tell is kept, and each array is looked at once.
"""

from functools import partial
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, worth_sharing
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.layout import accumulation, flat, room
from kernattn.ops.gated.cpu import NOWHERE, Layout, Plan, flat_state, plan_for, sum_of_logs
from kernattn.ops.gated.tokens import lend
from kernattn.ops.gated.tokens_loops import run_tokens

Shape = tuple[int, ...] | None
"""The shape of an array, None where there is none."""


def gated_step(
    state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None,
    read: Array | None, write: Array | None, scale: float, l2_normalise: bool, key_mask: Array | None,
    reuse_state: bool, out: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    dtype, logs = accumulation(v), g
    if gk is not None:
        logs, g = gk if g is None else sum_of_logs(g, gk, dtype), None
    plan = _plan_for(
        q.shape, k.shape, v.shape, None if logs is None else logs.shape, None if beta is None else beta.shape,
        g is None, None if read is None else read.shape, None if write is None else write.shape, state is not None,
        dtype.itemsize,
    )  # fmt: skip
    if out is None:
        out = np.empty(plan.out, v.dtype)
    before, after = state, None
    if state is not None:
        if state.shape != plan.after or state.dtype is not dtype or not state.flags.carray:
            before = flat_state(state, plan, dtype)
        elif reuse_state:
            after = state
    if after is None:
        after = room(plan.after, dtype)
    if beta is not None and not (beta.dtype is dtype and beta.flags.c_contiguous):
        beta = flat(beta, dtype)
    mask = None if key_mask is None else flat(np.broadcast_to(key_mask, plan.lead), bool)
    (k, v, logs, read, write, q, into), kinds = lend((k, v, logs, read, write, q, out), dtype)
    held = plan.numbers, plan.table, plan.reads, k, v, logs, beta, read, write, mask, None, q, before, into, after
    work = (*[0 if x is None else id(x) for x in held], kinds, l2_normalise, dtype.type(scale))
    if not worth_sharing(plan.seconds):
        run_tokens(*work, 0, len(plan.table))
    else:
        share(partial(_run_held, held, work), len(plan.table), plan.seconds)
    return out, after


def _run_held(held: tuple[Any, ...], work: tuple[Any, ...], low: int, high: int) -> None:
    """Run the loop while its arrays are held: nobody waits for it after an interrupt."""
    run_tokens(*work, low, high)


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
