"""Sums of outer products of features: of few by Numba, from cache, a block of rows at a time; of many by BLAS."""

from functools import partial
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share, worth_sharing
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, has_bits, nothing, rows, seconds_of
from kernattn.ops._numba.tiles.packing import map_as_given
from kernattn.ops.features.sides import keys
from kernattn.ops.gram.blas import add_blocks
from kernattn.ops.gram.loops import END, FIRST, X, Y, add_outer

ROWS, SPAN = 128, 256  # of a block of features
PARTS = 16  # of the rows, summed apart: as many on any number of threads, so that sums have the same bits
FEW = 4096  # bytes of a row of features: up to here the loop is level with BLAS, or faster


def gram(x: Array, y: Array, spec: MapSpec | None, wide: bool) -> tuple[Array, Array]:
    dtype = np.dtype(np.float64) if wide else accumulation(x)
    features = x.shape[-1] if spec is None else spec.num_features_of(x.shape[-1])
    return (_by_loop if features * dtype.itemsize <= FEW else _by_blas)(x, y, spec, dtype, features)


def _by_blas(x: Array, y: Array, spec: MapSpec | None, dtype: np.dtype[Any], features: int) -> tuple[Array, Array]:
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    rows, values = (np.broadcast_to(a, (*lead, *a.shape[-2:])) for a in (x, y))
    total = np.empty((*lead, features, features), dtype)
    cross = np.empty((*lead, features, y.shape[-1]), dtype)
    for i in np.ndindex(lead):
        add_blocks(rows[i], values[i], spec, total[i], cross[i])
    return total, cross


def _by_loop(x: Array, y: Array, spec: MapSpec | None, dtype: np.dtype[Any], features: int) -> tuple[Array, Array]:
    (*lead, n, width), (*y_lead, _, columns) = x.shape, y.shape
    if not has_bits(x, dtype):
        x = x.astype(dtype, copy=False)
    if spec is None:
        phi, own, given = map_as_given(dtype, width), rows(x, dtype), nothing(dtype)
    else:
        phi, own, given, *_ = keys(x, spec, dtype)
    who = heads(None, tuple(lead), tuple(y_lead))
    flops = features * (features + 2.0 * columns + 2.0 * phi.dim * phi.projects)
    seconds = len(who.k) * n * seconds_of(flops, features, dtype.itemsize)
    parts = 1
    if worth_sharing(seconds):
        parts = max(1, min(PARTS // len(who.k), n // (4 * ROWS)))
    runs = np.empty((len(who.k), parts, 4), np.int64)
    runs[..., X], runs[..., Y] = who.k[:, None], who.v[:, None]
    cuts = np.arange(parts + 1) * n // parts
    runs[..., FIRST], runs[..., END] = cuts[:-1], cuts[1:]
    sums = np.empty((len(who.k), parts, features, features), dtype)
    cross = np.empty((len(who.k), parts, features, columns), dtype)
    slab = partial(
        add_outer, phi.arrays, own, given, rows(y, dtype), n, columns, runs.reshape(-1, 4), NO_MASK,
        sums.reshape(-1), cross.reshape(-1), ROWS, SPAN,
    )  # fmt: skip
    share(slab, len(who.k) * parts, seconds)
    total, others = (a.sum(axis=1) if parts > 1 else a for a in (sums, cross))
    return total.reshape(*who.lead, features, features), others.reshape(*who.lead, features, columns)
