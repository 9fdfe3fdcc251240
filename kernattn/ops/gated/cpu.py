"""Gated linear attention by Numba: a state stays in cache while its tokens pass, chunk by chunk."""

from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, worth_sharing
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads, number_heads
from kernattn.ops._numba.tiles.layout import (
    NO_MASK,
    Rows,
    accumulation,
    flat,
    has_bits,
    kind_of,
    no_rows,
    nothing,
    room,
    rows,
    seconds_of,
    widen_rows,
    written,
)
from kernattn.ops.gated.loops import MASK, STATE, STEPS, TABLE_COLUMNS, Given
from kernattn.ops.gated.reference import segment_starts
from kernattn.ops.gated.tokens import run as run_tokens
from kernattn.ops.gated.walk_loops import run_gates

Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None]
"""A shape, and strides in numbers where rows are not one after the other."""

NOWHERE: Layout = (), None

CHUNK = 16  # tokens; more compute more of the triangle and of the substitution, fewer load the state more often


def gated(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    dtype = accumulation(v)
    plan, given, queries = work_of(q, k, v, g, gk, beta, read, write, l2_normalise, state, key_mask, segment_ids)
    before = flat_state(state, plan, dtype)
    out, after = room(plan.out, v.dtype), room(plan.after, dtype)
    walk = partial(run_gates, plan.sizes) if read is None else partial(run_tokens, plan.numbers)
    work = given, queries, before, plan.table, plan.reads, dtype.type(scale), written(out, dtype), after.reshape(-1)
    if not worth_sharing(plan.seconds):
        walk(*work, 0, len(plan.table))
    else:
        share(partial(walk, *work), len(plan.table), plan.seconds)
    return out, after


class Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    sizes: tuple[int, int, int, int, int]  # n, d, e, channels of a decay, tokens of a chunk
    numbers: NDArray[np.int64]  # of the loop over tokens: n, d, e, channels, readers of a state
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
) -> tuple[Plan, Given, Rows]:
    """Return who reads what, and what the loops read of keys and of queries."""
    dtype, n = accumulation(v), v.shape[-2]
    of_q, of_k, of_v, logs, reads, writes = (_lay_out(x, dtype) for x in (q, k, v, _logs(g, gk, dtype), read, write))
    if beta is not None and has_bits(beta, dtype):
        beta = widen_rows(beta)
    strength = _lay_out(None if beta is None else beta[..., None], dtype)
    layouts = [layout for _, layout in (of_q, of_k, of_v, logs, strength, reads, writes)]
    plan = plan_for(tuple(layouts), state is not None, dtype.itemsize)
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*plan.lead, n)), bool)
    if segment_ids is not None:
        fresh = flat(np.broadcast_to(segment_starts(np, segment_ids), (*plan.lead, n)), bool)
    given = Given(
        of_k[0], of_v[0], logs[0], strength[0][0], reads[0], writes[0], mask, fresh, l2_normalise
    )  # fmt: skip
    return plan, given, of_q[0]


def _lay_out(array: Array | None, dtype: np.dtype[Any]) -> tuple[Rows, Layout]:
    """Return rows (..., n, c) as loops read them, flat, and how they lie there: those that lie apart are not copied."""
    if array is None:
        return no_rows(dtype), NOWHERE
    if array.flags.c_contiguous:
        return rows(array, dtype), (array.shape, None)
    words = array.view(np.uint16) if has_bits(array, dtype) else array
    size, strides = words.itemsize, words.strides
    whole = words.shape[-1] == 1 or strides[-1] == size
    if (words is array and array.dtype != dtype) or not whole or any(x < 0 or x % size for x in strides):
        return rows(array, dtype), (array.shape, None)
    last = sum((count - 1) * x for count, x in zip(words.shape, strides, strict=True))
    apart = as_strided(words, (last // size + 1,), (size,), writeable=False)
    known, bits, _ = rows(array[..., :0, :0], dtype)
    layout = array.shape, tuple([x // size for x in strides])
    return ((apart, bits, 0) if words is array else (known, apart, kind_of(array))), layout


def _places(layout: Layout) -> tuple[NDArray[np.int64], int]:
    """Return where the rows of each head (...) begin, and how far a row is from the next."""
    (shape, strides), first = layout, np.zeros((), np.int64)
    if not shape:
        return first, 0
    steps = strides or [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for count, step in zip(shape[:-2], steps, strict=False):
        first = first[..., None] + step * np.arange(count)
    return first, steps[-2]


def _logs(g: Array | None, gk: Array | None, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the logs of decays (..., n, 1 or d)."""
    if g is None:
        return gk
    logs: NDArray[Any] = g[..., None]
    return logs if gk is None else sum_of_logs(g, gk, dtype)


def sum_of_logs(g: Array, gk: Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the logs of decays of channels, with those of all channels."""
    with np.errstate(over="ignore"):
        total: NDArray[Any] = np.add(gk, g[..., None], dtype=dtype)
    return total


def begun_anew(given: Given, plan: Plan, g: Array | None, gk: Array | None, key_mask: Array | None) -> Given:
    """Return the inputs, in which a token at which no channel lets anything remain begins a sequence.

    What came before it may be NaN. Where all channels have one decay, the loops look themselves.
    """
    if gk is None or not _forgets(g, gk):
        return given
    resets = np.all(gk == -np.inf, axis=-1)
    if g is not None:
        resets = resets | (g == -np.inf)
    shape = *plan.lead, plan.sizes[0]
    resets = np.broadcast_to(resets if key_mask is None else resets & key_mask, shape)
    return given._replace(fresh=flat(resets.reshape(-1) | given.fresh if given.fresh.size else resets, bool))


def forgets_rows(
    g: Array | None, gk: Array | None, key_mask: Array | None, state: Array | None, *of_tokens: Array
) -> bool:
    """Does a channel let nothing remain where some row is not finite, which products of all channels would spread?

    Rows of masked tokens are not read.
    """
    if gk is None or not _forgets(g, gk):
        return False
    return not ((state is None or np.isfinite(state).all()) and all(_finite(x, key_mask) for x in of_tokens))


def _finite(x: Array, key_mask: Array | None) -> bool:
    """Are all rows finite whose tokens are not masked?"""
    finite = np.isfinite(x)
    return bool(finite.all()) or (key_mask is not None and bool((finite.all(axis=-1) | ~key_mask).all()))


def _forgets(g: Array | None, gk: Array) -> bool:
    """Is there a channel that lets nothing remain?"""
    return any(x is not None and bool(np.any(x == -np.inf)) for x in (gk, g))


def flat_state(state: Array | None, plan: Plan, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the state before all tokens as loops read it, of every head."""
    if state is None:
        return nothing(dtype)
    return flat(state if state.shape == plan.after else np.broadcast_to(state, plan.after), dtype)


@keep_while_small
def plan_for(
    layouts: tuple[Layout, ...],  # of q, k, v, logs, beta, read and write
    begun: bool,
    itemsize: int,
) -> Plan:
    ((*q_lead, n, d), _), _, ((*_, e), _), (logs, _), *_ = layouts
    channels = logs[-1] if logs else 1
    (of_q, step_q), *places = [_places(layout) for layout in layouts]
    lead = np.broadcast_shapes(*(first.shape for first, _ in places))
    who = heads(tuple(q_lead), lead, lead)
    table = np.full((len(who.k), TABLE_COLUMNS), -1, np.int64)
    for column, (first, step) in enumerate(places):
        table[:, column] = np.broadcast_to(first, lead).reshape(-1)[who.k]
        table[:, STEPS + column] = step
    for column in (MASK, STATE) if begun else (MASK,):
        table[:, column] = number_heads(lead, lead).reshape(-1)[who.k]
    heads_q, heads_out = who.reads[..., 0], who.reads[..., 1]
    reads = np.stack([of_q.reshape(-1)[heads_q], heads_out, np.full_like(heads_q, step_q)], axis=-1)
    chunk = min(CHUNK, n)
    flops = (4 + 2 * reads.shape[1]) * d * e + (1 + reads.shape[1]) * chunk * (d * (1 if channels == 1 else 4) + e)
    seconds = len(table) * n * seconds_of(flops, 0, itemsize)
    out = (*who.out_lead, n, e)
    numbers = np.array([n, d, e, channels, reads.shape[1]], np.int64)
    return Plan((n, d, e, channels, chunk), numbers, lead, out, (*lead, d, e), table, reads, seconds)
