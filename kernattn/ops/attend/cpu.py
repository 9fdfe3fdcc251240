"""Queries against a summary of keys by Numba: features and product while a chunk lies in cache."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, flat, room, unwritten
from kernattn.ops.attend.loops import answer
from kernattn.ops.features.sides import add_scales, queries
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
    who = heads(readers.lead, tuple(lead), tuple(lead))
    reads = np.empty((prod(who.out_lead), 3), np.int64)
    reads[:, 1] = np.repeat(np.arange(prod(lead)), who.reads.shape[1])
    reads[:, 0], reads[:, 2] = who.reads[..., 0].reshape(-1), who.reads[..., 1].reshape(-1)
    out = room((*who.out_lead, n, e), s.dtype)
    found = LogNormaliser(np.empty_like(out[..., 0]), np.empty_like(out[..., 0])) if normaliser else None
    logarithms = (unwritten(s.dtype),) * 2 if found is None else tuple(x.reshape(-1) for x in found)
    sums = flat(s, s.dtype), flat(z, s.dtype), flat(peak, s.dtype)

    def blocks(low: int, high: int) -> None:
        answer(
            phi.arrays, e, readers.x, sums, reads, n, (out.reshape(-1), *logarithms), CHUNK, low, high
        )  # fmt: skip

    count = len(reads) * -(-n // CHUNK)
    flops = 2.0 * features * (e + (phi.dim if phi.projects else 0))
    seconds = len(reads) * n * (flops / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE) * s.itemsize / 4
    share(blocks, count, seconds)
    if found is not None:
        add_scales(found, readers)
    return out.astype(dtype, copy=False), found
