"""Queries against a summary of keys by Numba: features and product while a chunk lies in cache."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, flat, heads, side
from kernattn.ops._numba.linear import answer
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["attend"]

CHUNK = 64


def attend(state: PeakedSum, q: Array | ScaledFeatures, spec: MapSpec | None, dtype: Any) -> Array:
    """Return the output of each query."""
    s, z, peak = state
    *lead, features, e = s.shape
    queries = side(q, spec, s.dtype)
    plan, n = queries.plan, queries.n
    who = heads(queries.lead, tuple(lead), tuple(lead))
    reads = np.empty((prod(who.out_lead), 3), np.int64)
    reads[:, 1] = np.repeat(np.arange(prod(lead)), who.reads.shape[1])
    reads[:, 0], reads[:, 2] = who.reads[..., 0].reshape(-1), who.reads[..., 1].reshape(-1)
    out = np.empty((*who.out_lead, n, e), s.dtype)
    sums = [flat(x, s.dtype) for x in (s, z, peak)]

    def blocks(low: int, high: int) -> None:
        answer(
            plan.kind, plan.omega, plan.offset, plan.dim, plan.frequencies, features, e,
            queries.x, *sums, reads, n, out.reshape(-1), CHUNK, low, high,
        )  # fmt: skip

    count = len(reads) * -(-n // CHUNK)
    flops = 2.0 * features * (e + (plan.dim if plan.omega.size else 0))
    seconds = len(reads) * n * (flops / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE) * s.itemsize / 4
    share(blocks, count, seconds)
    return out.astype(dtype, copy=False)
