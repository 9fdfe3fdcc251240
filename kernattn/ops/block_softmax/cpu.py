"""Exact attention by Numba: scores, exponentials and sums of a block of queries never leave the cache."""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._plans.parts import Part, dense
from kernattn._plans.plan import Plan
from kernattn._runtime.parallel import share
from kernattn._sums.peaked import before_rounding
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import accumulation, flat, has_bits, narrow, room, rows, seconds_of, written
from kernattn.ops.block_softmax.loops import JOINS, online_softmax
from kernattn.ops.block_softmax.matrix import on_unit
from kernattn.ops.block_softmax.ordered import Order, mask_and_bias, order_of, reorder
from kernattn.ops.block_softmax.pairs import heads_read, lead_of, pairs_of


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None = None,
    score_bias: Array | None = None, keep: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    in_bits = has_bits(q, accumulation(q)) and not keep
    out, lse = answers(q, k, v, scale, plan, key_mask, key_bias, score_bias, in_bits, True)
    rounded = narrow(out, q.dtype)
    return (rounded, lse, before_rounding(np, out, q.dtype)) if keep else (rounded, lse)


def in_floats(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None
) -> tuple[Array, Array]:
    """Return what the op does for rows of 16 bits as it would for these in float32: something is added to outputs."""
    return answers(q, k, v, scale, plan, key_mask, key_bias, None, False, not has_bits(q, accumulation(q)))


def answers(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None,
    score_bias: Array | None, in_bits: bool, by_unit: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the op's outputs, those of rows of 16 bits `in_bits` where one part alone has them, else in floats.

    Where they may, `by_unit`, the matrix unit answers.
    """
    dtype = accumulation(q)
    how = _plan_for(q.shape, k.shape, v.shape, plan, dtype.itemsize, lead_of(score_bias))
    mask, bias = mask_and_bias(key_mask, key_bias, how.mask, dtype)
    given, queries, factor = (rows(k, dtype), rows(v, dtype), mask, bias), rows(q, dtype), float(scale)
    answered = on_unit(q, queries, given, factor, how, in_bits) if by_unit and score_bias is None else None
    if answered is not None and not answered.told.any():
        return answered.out, answered.lse
    out, lse = room(how.out, q.dtype if in_bits and not how.joins else dtype), np.empty(how.lse, dtype)
    if how.cleared:
        out[...], lse[...] = 0, -np.inf
    ready, logs = written(out, dtype), lse.reshape(-1)
    pairs = pairs_of(score_bias, dtype)
    for work in how.work:
        own = given if work.order is None else reorder(work.order, *given, how.sizes)
        added = pairs.of_part(work.heads, None if work.order is None else work.order.tokens)
        tiles = partial(online_softmax, queries, *own, added, factor, work.table, work.words, ready, logs, work.sizes)
        share(tiles, work.pieces, work.seconds)
    return (out, lse) if answered is None else answered.patch(narrow(out, answered.out.dtype), lse)


class _Work(NamedTuple):
    """A part for the heads that it is of."""

    table: NDArray[np.int64]  # what the loop does
    words: NDArray[np.uint64]
    order: Order | None
    sizes: tuple[int, int, int, int]  # n, d, l, e, of so many keys as it orders
    pieces: int
    seconds: float
    heads: NDArray[np.int64]  # of the bias of pairs, those that meet; none without one


class _Plan(NamedTuple):
    """What follows from shapes alone: made once for all calls of one form."""

    sizes: tuple[int, int, int, int]  # n, d, l, e
    mask: tuple[int, ...]
    out: tuple[int, ...]
    lse: tuple[int, ...]
    joins: bool  # whether a part adds to what another one wrote
    cleared: bool  # whether there are rows that no part of a head writes first
    work: tuple[_Work, ...]


@keep_while_small
def _plan_for(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], plan: Plan, itemsize: int, bias: tuple[int, ...] | None
) -> _Plan:  # fmt: skip
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q, k, v
    who = heads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    # the heads of q, k, v, the mask and out that meet
    reads = np.stack([who.q, who.k[who.states], who.v[who.states], who.states, who.out], axis=-1)
    of_heads = plan.heads if plan.kind == "parts" else ((dense(n, length, plan.kind == "causal"),),)
    pair = seconds_of(2.0 * (dim + e), 1, itemsize)
    work, cleared = [], False
    for head, parts in enumerate(of_heads):
        own = reads[reads[:, 4] % len(of_heads) == head] if len(of_heads) > 1 else reads
        whole = next((part for part in parts if _covers(part, n)), None)
        cleared = cleared or whole is None
        for part in sorted(parts, key=lambda part: part is not whole):
            order, numbers = order_of(part.keys, own[:, 1:4])
            met = np.concatenate([own[:, :1], numbers, own[:, 4:]], axis=1)
            pieces, seconds = len(own) * len(part.tiles), len(own) * part.visited * pair
            sizes = n, dim, length if order is None else len(order.tokens), e
            table = _table(part, met, part is not whole)
            added = heads_read(bias, who.out_lead, own[:, 4])
            work.append(_Work(table, part.words, order, sizes, pieces, seconds, added))
    joins = any(work.table[JOINS] for work in work)
    return _Plan(
        (n, dim, length, e), (*who.lead, length), (*who.out_lead, n, e), (*who.out_lead, n), joins, cleared, tuple(work)
    )


def _covers(part: Part, n: int) -> bool:
    """Has the part all n rows?"""
    return part.queries is None or len(part.queries) == n


def _table(part: Part, reads: NDArray[np.int64], joins: bool) -> NDArray[np.int64]:
    """Return a part and the heads that meet (R, 5) as the loop reads them."""
    queries = np.zeros(0, np.int64) if part.queries is None else part.queries
    sizes = np.array([len(part.tiles), len(part.visits), len(reads), joins])
    return flat(np.concatenate([sizes, part.tiles, part.visits, reads, queries], axis=None), np.dtype(np.int64))
