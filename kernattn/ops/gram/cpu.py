"""Sums of outer products of features by Numba: a block of features at a time, added to one triangle of G from cache."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array
from kernattn._parallel import WORTH_SHARING, share, threads
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.layout import FLOPS_PER_SECOND, NO_MASK, SECONDS_PER_FEATURE, accumulation, flat, nothing
from kernattn.ops._numba.packing import as_given
from kernattn.ops.features.sides import keys
from kernattn.ops.gram.loops import add_outer
from kernattn.ops.spec import MapSpec

__all__ = ["gram"]

ROWS, SPAN = 128, 256  # of a block of features


def gram(x: Array, y: Array, spec: MapSpec | None) -> tuple[Array, Array]:
    """Return phi^T phi (..., M, M) and phi^T y (..., M, c)."""
    dtype = accumulation(x)
    (*lead, n, width), (*y_lead, _, columns) = x.shape, y.shape
    if spec is None:
        phi, rows, given = as_given(dtype, width), flat(x, dtype), nothing(dtype)
    else:
        phi, rows, given, *_ = keys(x, spec, dtype)
    features, who = phi.features, heads(None, tuple(lead), tuple(y_lead))
    flops = features * (features + 2.0 * columns + 2.0 * phi.dim * phi.projects)
    seconds = len(who.k) * n * (flops / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE) * dtype.itemsize / 4
    parts = 1
    if seconds > WORTH_SHARING and len(who.k) < threads():
        parts = max(1, min(threads() // len(who.k), n // (4 * ROWS)))
    runs = np.empty((len(who.k), parts, 4), np.int64)
    runs[..., 0], runs[..., 1] = who.k[:, None], who.v[:, None]
    cuts = np.arange(parts + 1) * n // parts
    runs[..., 2], runs[..., 3] = cuts[:-1], cuts[1:]
    sums = np.empty((len(who.k), parts, features, features), dtype)
    cross = np.empty((len(who.k), parts, features, columns), dtype)
    values = flat(y, dtype)

    def slab(low: int, high: int) -> None:
        add_outer(
            phi.arrays, rows, given, values, n, columns, runs.reshape(-1, 4), NO_MASK,
            sums.reshape(-1), cross.reshape(-1),
            ROWS, SPAN, low, high,
        )  # fmt: skip

    share(slab, len(who.k) * parts, seconds)
    total, others = (a.sum(axis=1) if parts > 1 else a for a in (sums, cross))
    return total.reshape(*who.lead, features, features), others.reshape(*who.lead, features, columns)
