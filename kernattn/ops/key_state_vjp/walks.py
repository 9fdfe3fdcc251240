"""Walks over whole arrays: who writes and who reads, and what comes back."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    flat,
    nothing,
    room,
    unwritten,
)
from kernattn.ops._numba.packing import PackedMap, packed_map
from kernattn.ops.cotangents import onto_sums
from kernattn.ops.features.crossover import FUSED_ABOVE, fast
from kernattn.ops.key_state_vjp.loops import walk
from kernattn.ops.peaked import Normaliser, PeakedSum
from kernattn.ops.spec import MapSpec

__all__ = ["Side", "Walk", "fused", "keys", "onto_state", "queries", "walked"]

CHUNK = 64


class Side(NamedTuple):
    """Tokens of a walk, flat, and the leading axes of each part."""

    phi: PackedMap
    parts: tuple[NDArray[Any], ...]  # x, v, outputs, and z and peaks of normalisers, as `walk` takes them
    leads: tuple[tuple[int, ...], ...]  # of x, of v, of the three others, and of the mask
    mask: NDArray[np.bool_]


class Walk(NamedTuple):
    """What a walk found, for every head of the outputs."""

    dx: NDArray[Any] | None  # (..., n, d)
    read: NDArray[Any] | None  # (..., n, e)
    sums: PeakedSum | None


def fused(*specs: MapSpec) -> bool:
    """Do the loops take these maps? Quadratic forms and fast chains are left to array operations."""
    return all(spec.row_form is None and fast(spec.omega, FUSED_ABOVE) is None for spec in specs)


def keys(k: Array, v: Array, spec: MapSpec, key_mask: Array | None, dtype: np.dtype[Any]) -> Side:
    """Return keys with [v, 1]."""
    lead = np.broadcast_shapes(k.shape[:-2], v.shape[:-2])
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, (*lead, k.shape[-2])), bool)
    none = nothing(dtype)
    parts = flat(k, dtype), flat(v, dtype), none, none, none
    return Side(packed_map(spec, dtype, k.shape[-1]), parts, (k.shape[:-2], v.shape[:-2], (), lead), mask)


def queries(q: Array, spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, dtype: np.dtype[Any]) -> Side:
    """Return queries over their normalisers with [g, -g.o]."""
    lead = g.shape[:-2]
    parts = tuple(flat(x, dtype) for x in (q, g, out, normaliser.z, normaliser.peak))
    return Side(packed_map(spec, dtype, q.shape[-1]), parts, (q.shape[:-2], lead, lead, ()), NO_MASK)


def walked(
    writers: Side | None,
    readers: Side | None,
    state: tuple[int, ...],
    out: tuple[int, ...],
    before: PeakedSum | None,
    fresh: NDArray[np.bool_] | None = None,
    *,
    reverse: bool = False,
    wants: bool = False,
    keeps: bool = False,
    once: bool = False,
) -> Walk | None:
    """Return what a walk finds, None where a number is too large or too small for it.

    `state` and `out` are leading axes of states, and of the outputs; `fresh` says where sequences begin in the order of
    the walk. What came `before` is given to all heads that share a state, or to one of them, `once`. What is read is
    returned where it `wants` that, and the sums where it `keeps` them.
    """
    side = readers or writers
    assert side is not None
    dtype, lead_v = side.parts[0].dtype, side.leads[1]
    n = side.parts[0].size // side.phi.dim // prod(side.leads[0])
    e, count = side.parts[1].size // n // prod(lead_v), prod(out)
    runs = np.empty((count, 10), np.int64)
    of_state = _numbered(state, out)
    for at, each in ((0, writers), (4, readers)):
        for i, lead in enumerate((each or side).leads):
            runs[:, at + i] = _numbered(lead, out)
    runs[:, 3], runs[:, 7] = of_state, of_state
    runs[:, 8], runs[:, 9] = -1 if before is None else of_state, np.arange(count)
    if once and before is not None:
        others = np.ones(count, bool)
        others[np.unique(of_state, return_index=True)[1]] = False
        runs[others, 8] = -1
    runs.setflags(write=False)
    none, unwanted = nothing(dtype), unwritten(dtype)
    phi = side.phi
    tops = phi.features if phi.kind.per_feature else 1
    dx = None if readers is None else room((*out, n, phi.dim), dtype)
    read = room((*out, n, e), dtype) if wants else None
    sums = None
    if keeps:
        sums = PeakedSum(*(np.empty((count, *shape), dtype) for shape in ((phi.features, e), (phi.features,), (tops,))))
    old = (none,) * 3 if before is None else tuple(flat(x, dtype) for x in before)
    new = (unwanted,) * 3 if sums is None else tuple(x.reshape(-1) for x in sums)
    results = tuple(unwanted if x is None else x.reshape(-1) for x in (dx, read))
    far = np.zeros(count, np.int64)
    w, r = writers or side, readers or side
    masks = w.mask, r.mask, NO_MASK if fresh is None else flat(fresh, bool)
    modes = writers is not None, readers is not None, wants, readers is not None and not readers.parts[2].size

    def slab(low: int, high: int) -> None:
        walk(
            w.phi.arrays, r.phi.arrays, e, w.parts, r.parts, masks, old, runs, n, results, new, far,
            min(CHUNK, n), -1 if reverse else 1, modes, low, high,
        )  # fmt: skip

    share(slab, count, count * n * _seconds(w.phi, r.phi, e, modes) * dtype.itemsize / 4)
    if far.any():
        return None
    return Walk(dx, read, None if sums is None else PeakedSum(*(x.reshape(*out, *x.shape[1:]) for x in sums)))


def onto_state(state: PeakedSum, found: Walk) -> PeakedSum:
    """Return the cotangents of a state's sums from what queries have written for each of their heads."""
    assert found.sums is not None
    s, z, peak = found.sums
    return onto_sums(np, PeakedSum(s, z, -peak), state)


def _seconds(writer: PackedMap, reader: PackedMap, e: int, modes: tuple[bool, ...]) -> float:
    """Return what a token costs one core."""
    writes, reads, wants, _ = modes
    flops = 2.0 * writes * writer.features * (e + writer.dim * writer.projects)
    flops += 2.0 * reads * reader.features * (e * (1 + wants) + 2 * reader.dim * reader.projects)
    flops += 2.0 * (writes and reads) * CHUNK * (reader.features * (1 + wants) + e)
    return flops / FLOPS_PER_SECOND + (writes + reads) * writer.features * SECONDS_PER_FEATURE


def _numbered(lead: tuple[int, ...], out: tuple[int, ...]) -> NDArray[np.int64]:
    """Return which head of leading axes `lead` each head of `out` meets."""
    return np.broadcast_to(np.arange(prod(lead)).reshape(lead), out).reshape(-1)
