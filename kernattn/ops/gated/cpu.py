"""Gated linear attention by Numba: a state stays in cache while its tokens pass, chunk by chunk."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads, numbered
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, narrow, nothing, room, seconds_of
from kernattn.ops.gated.loops import TABLE_COLUMNS, Given, run_gates
from kernattn.ops.gated.reference import starts
from kernattn.ops.gated.tokens_loops import run_tokens

CHUNK = 16  # tokens; more compute more of the triangle and of the substitution, fewer load the state more often


def gated(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    out, after = run(
        run_gates if read is None else run_tokens, None, q, k, v, g, gk, beta, read, write, scale, l2_normalise,
        state, key_mask, segment_ids,
    )  # fmt: skip
    return narrow(out, v.dtype), after


def run(
    loop: Callable[..., None], after: NDArray[Any] | None, q: Array, k: Array, v: Array, g: Array | None,
    gk: Array | None, beta: Array | None, read: Array | None, write: Array | None, scale: float, l2_normalise: bool,
    state: Array | None, key_mask: Array | None, segment_ids: Array | None,
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Return outputs in the dtype of sums, and the state after them, in the array given for it or a new one."""
    dtype = accumulation(v)
    plan, given = work_of(q, k, v, g, gk, beta, read, write, l2_normalise, state, key_mask, segment_ids)
    queries, before = flat(q, dtype), flat_state(state, plan, dtype)
    out, after = room(plan.out, dtype), np.empty(plan.after, dtype) if after is None else after
    made, factor = (out.reshape(-1), after.reshape(-1)), dtype.type(scale)
    states = partial(loop, plan.sizes, given, queries, before, plan.table, plan.reads, factor, *made)
    share(states, len(plan.table), plan.seconds)
    return out, after


class Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    sizes: tuple[int, int, int, int, int]
    lead: tuple[int, ...]
    out: tuple[int, ...]
    after: tuple[int, ...]
    table: NDArray[np.int64]
    reads: NDArray[np.int64]
    seconds: float


def work_of(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    gk: Array | None,
    beta: Array | None,
    read: Array | None,
    write: Array | None,
    l2_normalise: bool,
    state: Array | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Plan, Given]:
    """Return who reads what, and what the loops read of keys."""
    dtype, n = accumulation(v), v.shape[-2]
    logs = _logs(g, gk, dtype)
    plan = _plan_for(
        q.shape, k.shape, v.shape, None if logs is None else logs.shape,
        None if beta is None else beta.shape, None if read is None else read.shape,
        None if write is None else write.shape, state is not None, dtype.itemsize,
    )  # fmt: skip
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*plan.lead, n)), bool)
    if segment_ids is not None:
        fresh = flat(np.broadcast_to(starts(np, segment_ids), (*plan.lead, n)), bool)
    none = nothing(dtype)
    given = Given(
        flat(k, dtype), flat(v, dtype), none if logs is None else flat(logs, dtype),
        none if beta is None else flat(beta, dtype), none if read is None else flat(read, dtype),
        none if write is None else flat(write, dtype), mask, fresh, l2_normalise,
    )  # fmt: skip
    return plan, given


def _logs(g: Array | None, gk: Array | None, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the logs of decays (..., n, 1 or d)."""
    if g is None:
        return gk
    logs: NDArray[Any] = g[..., None]
    if gk is None:
        return logs
    with np.errstate(over="ignore"):
        total: NDArray[Any] = np.add(gk, logs, dtype=dtype)
    return total


def flat_state(state: Array | None, plan: Plan, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the state before all tokens as loops read it, of every head."""
    if state is None:
        return nothing(dtype)
    return flat(state if state.shape == plan.after else np.broadcast_to(state, plan.after), dtype)


@keep_while_small
def _plan_for(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    logs: tuple[int, ...] | None,
    beta: tuple[int, ...] | None,
    read: tuple[int, ...] | None,
    write: tuple[int, ...] | None,
    begun: bool,
    itemsize: int,
) -> Plan:
    (*q_lead, n, d), e, channels = q, v[-1], 1 if logs is None else logs[-1]
    shapes = (k, 2), (v, 2), (logs, 2), (beta, 1), (read, 2), (write, 2)
    leads = [() if shape is None else tuple(shape[:-axes]) for shape, axes in shapes]
    lead = np.broadcast_shapes(*leads)
    who = heads(tuple(q_lead), lead, lead)
    table = np.full((len(who.k), TABLE_COLUMNS), -1, np.int64)
    for column, own in enumerate([*leads, lead, *([lead] if begun else [])]):
        table[:, column] = numbered(own, lead).reshape(-1)[who.k]
    chunk = min(CHUNK, n)
    flops = (4 + 2 * who.reads.shape[1]) * d * e + (1 + who.reads.shape[1]) * chunk * (
        d * (1 if channels == 1 else 4) + e
    )
    seconds = len(table) * n * seconds_of(flops, 0, itemsize)
    out = (*who.out_lead, n, e)
    return Plan((n, d, e, channels, chunk), lead, out, (*lead, d, e), table, who.reads, seconds)
