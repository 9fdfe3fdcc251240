"""Exact attention by Numba: scores, exponentials and sums of a block of queries never leave the cache."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
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
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q.shape, k.shape, v.shape
    reads, lead, out_lead = _reads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, (*lead, length)), bool)
    out, lse = room((*out_lead, n, e), dtype), np.empty((*out_lead, n), dtype)
    queries, keys, values = (
        flat(q, dtype, (-1, n, dim)),
        flat(k, dtype, (-1, length, dim)),
        flat(v, dtype, (-1, length, e)),
    )
    block = min(QUERIES, n)

    def blocks(low: int, high: int) -> None:
        online_softmax(
            queries, keys, values, mask, float(scale), causal, reads, out.reshape(-1), lse.reshape(-1),
            block, min(KEYS, length), low, high,
        )  # fmt: skip

    pairs = len(reads) * n * length * (0.5 if causal else 1.0)
    seconds = pairs * (2.0 * (dim + e) / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * dtype.itemsize / 4
    share(blocks, len(reads) * -(-n // block), seconds)
    return out.astype(q.dtype, copy=False), lse


@lru_cache(maxsize=32)
def _reads(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> tuple[NDArray[np.int64], tuple[int, ...], tuple[int, ...]]:
    """Return the heads of q, k, v, the mask and out that meet, (R, 5), and the leading axes of the mask and of out."""
    who = heads(q, k, v)
    states = np.repeat(np.arange(len(who.k)), who.reads.shape[1])
    return np.stack([who.q, who.k[states], who.v[states], states, who.out], axis=-1), who.lead, who.out_lead
