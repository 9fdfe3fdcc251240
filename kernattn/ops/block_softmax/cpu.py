"""Exact attention by Numba: scores, exponentials and sums of a block of queries never leave the cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.kept import kept_while_small
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    accumulation,
    flat,
    nothing,
    room,
)
from kernattn.ops.block_softmax.loops import online_softmax
from kernattn.ops.plan import SIDE, Part, Plan, dense

__all__ = ["block_softmax"]

AS_THEY_STAND = flat(np.zeros(0, np.int64), np.dtype(np.int64))


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None = None
) -> tuple[Array, Array]:
    """Return the outputs and the log normalisers."""
    dtype = accumulation(q)
    how = _planned(q.shape, k.shape, v.shape, plan, dtype.itemsize)
    mask, bias = NO_MASK, nothing(dtype)
    if key_bias is not None:
        bias = flat(np.broadcast_to(key_bias, how.mask), dtype)
        shown = np.isneginf(bias)
        if np.any(shown) or key_mask is not None:
            key_mask = ~shown.reshape(how.mask) & (True if key_mask is None else key_mask)
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, how.mask), bool)
    joined = how.joined
    out, lse = room(how.out, dtype), np.empty(how.out[:-1], dtype)
    if joined:
        out[...], lse[...] = 0, -np.inf
    queries, keys, values = flat(q, dtype, how.q), flat(k, dtype, how.k), flat(v, dtype, how.v)
    flat_out, flat_lse, (block, of_keys) = out.reshape(-1), lse.reshape(-1), how.blocks
    for work in how.work:
        part, reads = work.part, work.reads

        def tiles(low: int, high: int, part: Arrays = part, reads: NDArray[np.int64] = reads) -> None:
            online_softmax(
                queries, keys, values, mask, bias, float(scale), *part, joined, reads,
                flat_out, flat_lse, block, of_keys, low, high,
            )  # fmt: skip

        share(tiles, work.pieces, work.seconds)
    return out.astype(q.dtype, copy=False), lse


Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]


class _Work(NamedTuple):
    """A part for the heads that it is of."""

    part: Arrays  # queries, keys, tiles, visits, words
    reads: NDArray[np.int64]  # (R, 5) heads of q, k, v, the mask and out that meet
    pieces: int
    seconds: float


class _Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    q: tuple[int, ...]  # (heads, n, d), as the loop sees queries
    k: tuple[int, ...]
    v: tuple[int, ...]
    mask: tuple[int, ...]
    out: tuple[int, ...]
    blocks: tuple[int, int]  # queries and keys in a block
    joined: bool  # parts are merged into what was answered, or leave rows out
    work: tuple[_Work, ...]


@kept_while_small
def _planned(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], plan: Plan, itemsize: int) -> _Plan:
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q, k, v
    reads, lead, out_lead = _reads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    of_heads = plan.heads if plan.kind == "parts" else ((dense(n, length, plan.kind == "causal"),),)
    pair = (2.0 * (dim + e) / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * itemsize / 4
    work = []
    for head, parts in enumerate(of_heads):
        own = np.ascontiguousarray(reads[reads[:, 4] % len(of_heads) == head]) if len(of_heads) > 1 else reads
        own.setflags(write=False)
        for part in parts:
            tiles = len(part.tiles)
            work.append(_Work(_arrays(part), own, len(own) * tiles, len(own) * part.visited * pair))
    joined = any(len(parts) != 1 or not _covers(parts[0], n) for parts in of_heads)
    return _Plan(
        (-1, n, dim), (-1, length, dim), (-1, length, e), (*lead, length), (*out_lead, n, e),
        (min(SIDE, n), min(SIDE, length)), joined, tuple(work),
    )  # fmt: skip


def _covers(part: Part, n: int) -> bool:
    """Has the part all n rows?"""
    return part.queries is None or len(part.queries) == n


def _arrays(part: Part) -> Arrays:
    queries, keys = (AS_THEY_STAND if tokens is None else tokens for tokens in part[:2])
    return queries, keys, part.tiles, part.visits, part.words


@kept_while_small
def _reads(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> tuple[NDArray[np.int64], tuple[int, ...], tuple[int, ...]]:
    """Return the heads of q, k, v, the mask and out that meet, (R, 5), and the leading axes of the mask and of out."""
    who = heads(q, k, v)
    states = np.repeat(np.arange(len(who.k)), who.reads.shape[1])
    return np.stack([who.q, who.k[states], who.v[states], states, who.out], axis=-1), who.lead, who.out_lead
