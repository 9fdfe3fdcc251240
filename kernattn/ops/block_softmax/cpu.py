"""Exact attention by Numba: scores, exponentials and sums of a block of queries never leave the cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.kept import kept_while_small
from kernattn.ops._numba.layout import FLOPS_PER_SECOND, NO_MASK, SECONDS_PER_FEATURE, accumulation, flat, room
from kernattn.ops.block_softmax.loops import online_softmax
from kernattn.ops.plan import Plan

__all__ = ["block_softmax"]

QUERIES, KEYS = 64, 64  # in a block


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None
) -> tuple[Array, Array]:
    """Return the outputs and the log normalisers."""
    dtype, causal = accumulation(q), plan.kind == "causal"
    how = _planned(q.shape, k.shape, v.shape, causal, dtype.itemsize)
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, how.mask), bool)
    out, lse = room(how.out, dtype), np.empty(how.out[:-1], dtype)
    queries, keys, values = flat(q, dtype, how.q), flat(k, dtype, how.k), flat(v, dtype, how.v)
    flat_out, flat_lse, reads, (block, of_keys) = out.reshape(-1), lse.reshape(-1), how.reads, how.blocks

    def blocks(low: int, high: int) -> None:
        online_softmax(
            queries, keys, values, mask, float(scale), causal, reads, flat_out, flat_lse, block, of_keys, low, high
        )  # fmt: skip

    share(blocks, how.pieces, how.seconds)
    return out.astype(q.dtype, copy=False), lse


class _Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    q: tuple[int, ...]  # (heads, n, d), as the loop sees queries
    k: tuple[int, ...]
    v: tuple[int, ...]
    mask: tuple[int, ...]
    out: tuple[int, ...]
    reads: NDArray[np.int64]  # (R, 5) heads of q, k, v, the mask and out that meet
    blocks: tuple[int, int]  # queries and keys in a block
    pieces: int  # as many blocks
    seconds: float


@kept_while_small
def _planned(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, itemsize: int) -> _Plan:
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q, k, v
    reads, lead, out_lead = _reads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    pairs = len(reads) * n * length * (0.5 if causal else 1.0)
    seconds = pairs * (2.0 * (dim + e) / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * itemsize / 4
    block = min(QUERIES, n)
    return _Plan(
        (-1, n, dim), (-1, length, dim), (-1, length, e), (*lead, length), (*out_lead, n, e),
        reads, (block, min(KEYS, length)), len(reads) * -(-n // block), seconds,
    )  # fmt: skip


@kept_while_small
def _reads(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> tuple[NDArray[np.int64], tuple[int, ...], tuple[int, ...]]:
    """Return the heads of q, k, v, the mask and out that meet, (R, 5), and the leading axes of the mask and of out."""
    who = heads(q, k, v)
    states = np.repeat(np.arange(len(who.k)), who.reads.shape[1])
    return np.stack([who.q, who.k[states], who.v[states], states, who.out], axis=-1), who.lead, who.out_lead
