"""Gated linear attention by Numba: a state stays in cache while its tokens pass, chunk by chunk."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import WORTH_SHARING, share
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads, numbered
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, narrow, nothing, room, seconds_of
from kernattn.ops.gated.loops import MASK, STATE, STEPS, TABLE_COLUMNS, Given, run_gates
from kernattn.ops.gated.reference import starts
from kernattn.ops.gated.tokens_loops import run_tokens

Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None]
"""A shape, and strides in bytes where rows are not one after the other."""

NOWHERE: Layout = (), None

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
    plan, given, queries = work_of(q, k, v, g, gk, beta, read, write, l2_normalise, state, key_mask, segment_ids)
    before = flat_state(state, plan, dtype)
    out, after = room(plan.out, dtype), np.empty(plan.after, dtype) if after is None else after
    read_by, made = (plan.sizes, given, queries, before, plan.table, plan.reads, dtype.type(scale)), (out, after)
    written = [x.reshape(-1) for x in made]
    if plan.seconds <= WORTH_SHARING:
        loop(*read_by, *written, 0, len(plan.table))
    else:
        share(partial(loop, *read_by, *written), len(plan.table), plan.seconds)
    return made


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
) -> tuple[Plan, Given, NDArray[Any]]:
    """Return who reads what, and what the loops read of keys and of queries."""
    dtype, n = accumulation(v), v.shape[-2]
    arrays = q, k, v, _logs(g, gk, dtype), None if beta is None else beta[..., None], read, write
    rows, layouts = [], []
    for x in arrays:
        if x is None:
            row, layout = nothing(dtype), NOWHERE
        elif x.dtype is dtype and x.flags.c_contiguous:
            row, layout = x.ravel(), (x.shape, None)
            row.setflags(write=False)
        else:
            row, layout = _rows_apart(x, dtype)
        rows.append(row)
        layouts.append(layout)
    plan = _plan_for(tuple(layouts), state is not None, dtype.itemsize)
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*plan.lead, n)), bool)
    if segment_ids is not None:
        fresh = flat(np.broadcast_to(starts(np, segment_ids), (*plan.lead, n)), bool)
    return plan, Given._make([*rows[1:], mask, fresh, l2_normalise]), rows[0]


def _rows_apart(array: Array, dtype: np.dtype[Any]) -> tuple[NDArray[Any], Layout]:
    """Return rows (..., n, c) as loops read them, flat, and how they lie there: those that lie apart are not copied."""
    size, strides = dtype.itemsize, array.strides
    whole = array.shape[-1] == 1 or strides[-1] == size
    if array.dtype != dtype or not whole or any(x < 0 or x % size for x in strides):
        return flat(array, dtype), (array.shape, None)
    last = sum((count - 1) * x for count, x in zip(array.shape, strides, strict=True))
    return as_strided(array, (last // size + 1,), (size,), writeable=False), (array.shape, strides)


def _places(layout: Layout, itemsize: int) -> tuple[NDArray[np.int64], int]:
    """Return where the rows of each head (...) begin, and how far a row is from the next."""
    (shape, strides), first = layout, np.zeros((), np.int64)
    if not shape:
        return first, 0
    if strides is None:
        steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    else:
        steps = [x // itemsize for x in strides]
    for count, step in zip(shape[:-2], steps, strict=False):
        first = first[..., None] + step * np.arange(count)
    return first, steps[-2]


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
    layouts: tuple[Layout, ...],  # of q, k, v, logs, beta, read and write
    begun: bool,
    itemsize: int,
) -> Plan:
    ((*q_lead, n, d), _), _, ((*_, e), _), (logs, _), *_ = layouts
    channels = logs[-1] if logs else 1
    (of_q, step_q), *found = [_places(layout, itemsize) for layout in layouts]
    lead = np.broadcast_shapes(*(first.shape for first, _ in found))
    who = heads(tuple(q_lead), lead, lead)
    table = np.full((len(who.k), TABLE_COLUMNS), -1, np.int64)
    for column, (first, step) in enumerate(found):
        table[:, column] = np.broadcast_to(first, lead).reshape(-1)[who.k]
        table[:, STEPS + column] = step
    for column in (MASK, STATE) if begun else (MASK,):
        table[:, column] = numbered(lead, lead).reshape(-1)[who.k]
    heads_q, heads_out = who.reads[..., 0], who.reads[..., 1]
    reads = np.stack([of_q.reshape(-1)[heads_q], heads_out, np.full_like(heads_q, step_q)], axis=-1)
    chunk = min(CHUNK, n)
    flops = (4 + 2 * reads.shape[1]) * d * e + (1 + reads.shape[1]) * chunk * (d * (1 if channels == 1 else 4) + e)
    seconds = len(table) * n * seconds_of(flops, 0, itemsize)
    out = (*who.out_lead, n, e)
    return Plan((n, d, e, channels, chunk), lead, out, (*lead, d, e), table, reads, seconds)
