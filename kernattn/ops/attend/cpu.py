"""Queries against a summary of keys by Numba: features and product while a chunk lies in cache."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, flat, narrowed, room, unwritten
from kernattn.ops.attend.loops import answer
from kernattn.ops.features.sides import queries
from kernattn.ops.peaked import LogNormaliser, PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["attend"]

CHUNK = 64


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, LogNormaliser | None]:
    """Return the output of each query, and its normaliser where it is wanted."""
    s, z, peak = state
    *lead, features, e = s.shape
    readers = queries(q, q_spec, s.dtype, normaliser)
    phi, n = readers.phi, readers.n
    chunk = min(CHUNK, n)
    reads, out_lead = _reads(readers.lead, tuple(lead))
    out = room((*out_lead, n, e), s.dtype)
    found = LogNormaliser(np.empty_like(out[..., 0]), np.empty_like(out[..., 0])) if normaliser else None
    logarithms = (unwritten(s.dtype),) * 2 if found is None else tuple(x.reshape(-1) for x in found)
    sums = flat(s, s.dtype), flat(z, s.dtype), flat(peak, s.dtype)

    def blocks(low: int, high: int) -> None:
        answer(
            phi.arrays, e, readers.x, readers.given, sums, reads, n, (out.reshape(-1), *logarithms), chunk, low, high
        )

    count = len(reads) * -(-n // chunk)
    flops = 2.0 * features * (e + (phi.dim if phi.projects else 0))
    seconds = len(reads) * n * (flops / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE) * s.itemsize / 4
    share(blocks, count, seconds)
    return narrowed(out, dtype), found


@lru_cache(maxsize=32)
def _reads(q: tuple[int, ...], state: tuple[int, ...]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the heads of q, of the state and of out that meet, (R, 3), and the leading axes of out."""
    who = heads(q, state, state)
    states = np.repeat(np.arange(len(who.k)), who.reads.shape[1])
    return np.stack([who.q, states, who.out], axis=-1), who.out_lead
