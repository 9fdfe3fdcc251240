"""Cotangents of exact attention by Numba: each tile of keys meets each block of queries that sees any of it once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._plans.parts import SIDE, Part, dense, tokens_of
from kernattn._plans.plan import Plan
from kernattn._plans.transposed import dense_from_keys, from_keys
from kernattn._runtime.parallel import share
from kernattn._sums.cotangents import sum_onto
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import (
    Rows,
    accumulation,
    flat,
    narrow,
    nothing,
    rows,
    seconds_of,
    settled,
    unwritten,
)
from kernattn.ops.block_softmax.ordered import Order, mask_and_bias, order_of, put_back, reorder
from kernattn.ops.block_softmax.pairs import NONE, Pairs, heads_read, lead_of, pairs_of
from kernattn.ops.block_softmax_vjp.far_loops import pull_far_rows
from kernattn.ops.block_softmax_vjp.loops import pull_blocks
from kernattn.ops.block_softmax_vjp.rows_loops import KINDS, judge_rows

PIECES = 32  # at least, where there are as many blocks
PIECES_APART = 8  # of states that have a bias of pairs to themselves for a while: more read each tile more often
VISITS = 256  # of blocks, in a piece
TOKENS = 1 << 20  # that far rows see, at a time


def block_softmax_vjp(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None,
    score_bias: Array | None, out: Array, lse: Array, g: Array, g_lse: Array | None,
) -> tuple[Array, Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    wide, ds, of_bias, of_pairs = _pulled(q, k, v, scale, plan, key_mask, key_bias, score_bias, out, lse, g, g_lse)
    dq, dk, dv = (settled(wide.pop(0), x.dtype) for x in (q, k, v))
    if score_bias is not None and of_pairs is not None:
        of_pairs = narrow(of_pairs, score_bias.dtype)
    return dq, dk, dv, ds, of_bias, of_pairs


def in_floats(*given: Any) -> tuple[NDArray[Any], ...]:
    """Return the cotangents of queries, keys and values of 16 bits as of these in float32: something is added."""
    return tuple(_pulled(*given)[0])


def _pulled(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None,
    score_bias: Array | None, out: Array, lse: Array, g: Array, g_lse: Array | None,
) -> tuple[list[NDArray[Any]], NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:  # fmt: skip
    """Return the cotangents, those of queries, keys, values and pairs in the dtype of sums."""
    dtype = accumulation(q)
    how = _plan_for(q.shape, k.shape, v.shape, plan, dtype.itemsize, lead_of(score_bias))
    leads = how.out_lead, how.lead, how.lead
    onto = tuple(np.zeros((*lead, *x.shape[-2:]), dtype) for lead, x in zip(leads, (q, k, v), strict=True))
    of_pairs = None if score_bias is None else np.zeros(score_bias.shape, dtype)
    pairs = (score_bias, of_pairs)
    ds, db = add_cotangents(q, k, v, scale, plan, key_mask, key_bias, out, lse, g, g_lse, onto, pairs)
    wide = [sum_onto(np, y, x.shape) for y, x in zip(onto, (q, k, v), strict=True)]
    of_bias = None if key_bias is None else narrow(sum_onto(np, db[..., 0], key_bias.shape), key_bias.dtype)
    return wide, np.asarray(ds, dtype), of_bias, of_pairs


def add_cotangents(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None, out: Array,
    lse: Array, g: Array, g_lse: Array | None, onto: tuple[NDArray[Any], ...],
    pairs: tuple[Array | None, NDArray[Any] | None] = (None, None),
) -> tuple[float, NDArray[Any]]:  # fmt: skip
    """Add the cotangents of queries, keys and values to arrays; return that of the scale, and those of the bias.

    The arrays are contiguous, in the dtype of sums: that of queries has the leading axes of outputs, those of keys and
    values the ones that keys and values have together. `pairs` are a bias of pairs, and the array of its cotangents.
    """
    (score_bias, of_pairs), dtype, length = pairs, accumulation(q), k.shape[-2]
    lead = lead_of(score_bias)
    how = _plan_for(q.shape, k.shape, v.shape, plan, dtype.itemsize, lead)
    mask, bias = mask_and_bias(key_mask, key_bias, (*how.lead, length), dtype)
    of_lse = nothing(dtype) if g_lse is None else flat(g_lse, dtype)
    count = len(how.states)
    dq, dk, dv = onto
    x = _Arrays(
        rows(q, dtype), rows(k, dtype), rows(v, dtype), rows(g, dtype), mask, bias, of_lse, float(scale), how.sizes,
        np.empty(lse.size, dtype), np.empty(lse.size, dtype), np.empty(lse.size, np.bool_),
        dq, dk.reshape(count, length, -1), dv.reshape(count, length, -1),
        np.zeros((count if bias.size > 0 else 0, length, 1), dtype),
        pairs_of(score_bias, dtype), unwritten(dtype) if of_pairs is None else of_pairs.reshape(-1),
    )  # fmt: skip
    judge = partial(
        judge_rows, x.q, x.k, mask, bias, x.scale, KINDS.index(plan.kind), how.states, how.reads,
        rows(out, dtype), flat(lse, dtype), x.g, of_lse, x.shifts, x.dots, x.far, how.sizes,
    )  # fmt: skip
    share(judge, count, how.seconds_to_judge)
    ds = sum(_pull(work, x) for work in how.work)
    if x.far.any():
        of_heads = _heads(plan, q.shape[-2], length, how.states, how.reads)
        ds += sum(_pull_far(each, x) for head in of_heads for each in _apart(head, lead, how.out_lead))
    return ds, x.db.reshape(*how.lead, length, -1)


class _Arrays(NamedTuple):
    """Arrays that the loops read, and those that they add to."""

    q: Rows  # (heads, n, d), as k, v and g
    k: Rows
    v: Rows
    g: Rows
    mask: NDArray[np.bool_]
    bias: NDArray[Any]
    of_lse: NDArray[Any]  # the cotangents of the log normalisers, or no numbers
    scale: float
    sizes: tuple[int, int, int, int]
    shifts: NDArray[Any]
    dots: NDArray[Any]
    far: NDArray[np.bool_]
    dq: NDArray[Any]  # with the leading axes of outputs
    dk: NDArray[Any]  # (states, l, d), as dv and db
    dv: NDArray[Any]
    db: NDArray[Any]
    pairs: Pairs
    dpairs: NDArray[Any]  # (its heads, n, l), flat, or no numbers


def _pull(work: _Work, x: _Arrays) -> float:
    """Add the cotangents of queries and of keys that a part has; return that of the scale."""
    order, dq, ds = work.order, x.dq.reshape(-1), np.zeros(work.pieces)
    keys, grads, sizes = (x.k, x.v, x.mask, x.bias), [x.dk, x.dv, x.db], x.sizes
    if order is not None:
        n, dim, _, e = sizes
        sizes = n, dim, len(order.tokens), e
        keys = reorder(order, *keys, x.sizes)
        grads = [np.zeros((len(order.rows) if len(y) else 0, len(order.tokens), y.shape[-1]), y.dtype) for y in grads]
    pairs = x.pairs.of_part(work.heads, None if order is None else order.tokens)
    pull = partial(
        pull_blocks, x.q, *keys[:2], x.g, *keys[2:], pairs, x.scale, work.table, work.words, x.shifts, x.dots, dq,
        *(y.reshape(-1) for y in grads), x.dpairs, ds, sizes,
    )  # fmt: skip
    for phase in range(work.splits):  # one after the other, so that sums run in one order on any number of threads
        share(partial(pull, phase), work.pieces, work.seconds)
    if order is not None:
        for y, total in zip(grads, (x.dk, x.dv, x.db), strict=True):
            put_back(order, y, total)
    return float(ds.sum())


def _pull_far(head: _Head, x: _Arrays) -> float:
    """Add the cotangents of rows whose scores leave the floats, one by one; return that of the scale."""
    parts, states, reads, of_pairs = head
    ds = np.zeros(len(states))
    far = np.flatnonzero(x.far.reshape(-1, x.sizes[0])[reads[..., 1].reshape(-1)].any(axis=0))
    for some, ends, tokens in _list_seen(parts, far):
        pull = partial(
            pull_far_rows, x.q, x.k, x.v, x.g, x.of_lse, x.mask, x.bias, x.pairs.of_part(of_pairs, None), x.scale,
            states, reads, x.far, some, ends, tokens, x.dq.reshape(-1), x.dk.reshape(-1), x.dv.reshape(-1),
            x.db.reshape(-1), x.dpairs, ds, x.sizes,
        )  # fmt: skip
        share(pull, len(ds), len(ds) * len(tokens) * x.sizes[1] * 1e-9)
    return float(ds.sum())


def _list_seen(parts: tuple[Part, ...], rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield some rows, where the tokens of each end, and the tokens that they see, one row after the other."""
    some: list[int] = []
    of_rows = [np.zeros(0, np.int64)]
    for row in rows:
        some.append(row)
        of_rows.append(tokens_of(parts, row))
        if row == rows[-1] or sum(map(len, of_rows)) >= TOKENS:
            yield np.array(some), np.cumsum([len(tokens) for tokens in of_rows]), np.concatenate(of_rows)
            some, of_rows = [], of_rows[:1]


class _Work(NamedTuple):
    """A part for the heads that it is of."""

    table: NDArray[np.int64]  # what the loop does
    words: NDArray[np.uint64]
    order: Order | None
    pieces: int
    splits: int
    seconds: float  # of a phase
    heads: NDArray[np.int64]  # of the bias of pairs, by reads of a state; none without one


class _Head(NamedTuple):
    """A head of a plan, or all where they are alike."""

    parts: tuple[Part, ...]
    states: NDArray[np.int64]  # (B, 3) heads of k and v that meet, and their number
    reads: NDArray[np.int64]  # (B, G, 2) heads of q that read them, and of outputs
    pairs: NDArray[np.int64] = NONE  # (B * G,) heads of the bias of pairs that are read; none without one


class _Plan(NamedTuple):
    """What follows from shapes alone: made once for all calls of one form."""

    sizes: tuple[int, int, int, int]  # n, d, l, e
    lead: tuple[int, ...]  # of k and v together
    out_lead: tuple[int, ...]
    states: NDArray[np.int64]  # as a head has them
    reads: NDArray[np.int64]
    seconds_to_judge: float
    work: tuple[_Work, ...]


@keep_while_small
def _plan_for(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], plan: Plan, itemsize: int, bias: tuple[int, ...] | None
) -> _Plan:
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q, k, v
    who = heads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    states = np.stack([who.k, who.v, np.arange(len(who.k))], axis=-1)
    pair = seconds_of(2.0 * (3 * dim + 2 * e), 1, itemsize)
    back = from_keys(plan) if plan.kind == "parts" else plan
    of_heads = _heads(back, n, length, states, who.reads, dense_from_keys)
    apart = [each for head in of_heads for each in _apart(head, bias, who.out_lead)]
    work = tuple(_work(part, head, n, pair) for head in apart for part in head.parts)
    return _Plan(
        (n, dim, length, e), who.lead, who.out_lead, states, who.reads,
        seconds_of(len(who.q) * n * (dim + 2 * e) + len(states) * length * dim, 0, 4), work,
    )  # fmt: skip


def _heads(
    plan: Plan, n: int, length: int, states: NDArray[np.int64], reads: NDArray[np.int64], whole: Any = dense
) -> Iterator[_Head]:
    if plan.kind != "parts":
        yield _Head((whole(n, length, plan.kind == "causal"),), states, reads)
    elif len(plan.heads) == 1:
        yield _Head(plan.heads[0], states, reads)
    else:
        for head, parts in enumerate(plan.heads):
            belongs = reads[..., 1] % len(plan.heads) == head
            own = np.flatnonzero(belongs.any(axis=1))
            yield _Head(parts, states[own], reads[own][belongs[own]].reshape(len(own), -1, 2))


def _apart(head: _Head, bias: tuple[int, ...] | None, out_lead: tuple[int, ...]) -> Iterator[_Head]:
    """Yield a head's states a group after the other, such that no two of a group read one head of the bias of pairs."""
    if bias is None:
        yield head
        return
    shape = head.reads.shape[:2]
    read = heads_read(bias, out_lead, head.reads[..., 1].reshape(-1)).reshape(shape)
    first = read.min(axis=1)  # leading axes broadcast: two states read the same heads, or none in common
    order = np.argsort(first, kind="stable")
    begins = np.searchsorted(first[order], first[order])
    turn = np.empty(len(first), np.int64)
    turn[order] = np.arange(len(first)) - begins
    for at in range(turn.max(initial=-1) + 1):
        own = turn == at
        yield _Head(head.parts, head.states[own], head.reads[own], flat(read[own], read.dtype))


def _work(part: Part, head: _Head, n: int, pair: float) -> _Work:
    order, numbers = order_of(part.queries, head.states)
    count, group = head.reads.shape[:2]
    queries = np.zeros(0, np.int64) if part.keys is None else part.keys
    blocks = -(-(len(queries) or n) // SIDE)
    long = isqrt(part.visited * group // (SIDE * SIDE * VISITS))
    splits = max(1, min(len(part.tiles), blocks, max(-(-(PIECES_APART if len(head.pairs) else PIECES) // count), long)))
    sizes = np.array([len(part.tiles), len(part.visits), count, group, splits])
    table = np.concatenate([sizes, part.tiles, part.visits, numbers, head.reads, queries], axis=None)
    return _Work(
        flat(table, np.dtype(np.int64)), part.words, order, count * splits, splits,
        count * group * part.visited * pair / splits, head.pairs,
    )  # fmt: skip
