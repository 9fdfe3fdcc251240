"""The summary of keys in CUDA: a block for every slab of rows and tile of features, then a scan over the slabs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.axes import broadcast, key_arguments, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import MapInput
from kernattn.ops._cuda.linear import LinearCode, Slabs, cut, empty_state, linear_code, pointers, side
from kernattn.ops._cuda.maps import FB, map_bytes
from kernattn.ops._cuda.sizes import ceil_div, pieces
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Launch", "key_state", "launch", "scan", "summarise"]

SCAN_THREADS = 256


@dataclass(frozen=True)
class Launch:
    """The launches of `summarise` and, over more than one slab, of `scan`."""

    code: LinearCode
    slabs: Slabs
    summarised: int  # slabs of each entry, the first ones
    grid: tuple[int]
    shared_bytes: int
    scan_blocks: int  # of each entry
    entries: int


def launch(
    entries: int,
    n: int,
    e: int,
    frequencies: int,
    code: LinearCode,
    slabs: Slabs | None,
    limits: runtime.Limits,
) -> Launch:
    """Return the launches for k (entries, n, d), v (entries, n, e); the last of slabs that are given is left out."""
    summarised = 0 if slabs is None else slabs.count - 1
    blocks = code.map.tiles(frequencies) * ceil_div(e, code.eb)
    if slabs is None:
        slabs = cut(n, max(1, 4 * limits.multiprocessors // (entries * blocks)), code.map.rows)
        summarised = slabs.count
    features = frequencies * code.map.parts
    accumulator, operand, rows = code.map.accumulator, code.map.operand, code.map.rows
    shared_bytes = map_bytes(code.map, 1) + pieces(
        (rows * code.v_row, operand),
        (rows * code.phi_row, operand),
        (rows, accumulator),
        (rows, "float"),
        (code.map.warps * FB, accumulator),
        *[(FB, accumulator)] * 3,
    )
    scan_blocks = ceil_div(features * (e + 1), SCAN_THREADS)
    return Launch(code, slabs, summarised, (entries * summarised * blocks,), shared_bytes, scan_blocks, entries)


def summarise(
    how: Launch,
    rows: MapInput,
    v: Array,
    arguments: tuple[Any, ...],
    mask: Any,
    segments: Any,
    into: PeakedSum,
    h: Any = NULL,
    reverse: bool = False,
) -> None:
    """Launch `summarise`: `into` holds a state for every slab, z the sums of features times h (..., n), or 1."""
    function = runtime.kernel("key_state", "summarise", how.code.defines)
    n, e = v.shape[-2:]
    slabs = (np.int32(how.slabs.count), np.int32(how.summarised), np.int64(how.slabs.rows))
    sizes = (np.int64(n), np.int32(e), *slabs, np.int32(reverse))
    runtime.start(
        function,
        how.grid,
        how.code.map.threads,
        how.shared_bytes,
        (rows.x, v, rows.scale, h, *arguments, mask, segments, *into, *sizes),
    )


def scan(
    how: Launch,
    parts: PeakedSum,
    before: Any,
    start: PeakedSum | None,
    end: PeakedSum | None,
    segments: Any,
    n: int,
    reverse: bool = False,
) -> None:
    """Launch `scan`: all slabs merged into `end`, or without it what each finds before it into `parts` and `before`."""
    function = runtime.kernel("key_state", "scan", how.code.defines)
    features, e = parts.s.shape[-2:]
    states = (*pointers(start, 3), *pointers(end, 3))
    sizes = (np.int64(n), np.int32(how.slabs.count), np.int64(how.slabs.rows))
    shape = (
        np.int32(features),
        np.int32(e),
        np.int32(parts.peak.shape[-1]),
        np.int32(end is None),
        np.int32(how.scan_blocks),
        np.int32(reverse),
    )
    blocks = how.entries * how.scan_blocks
    runtime.start(function, (blocks,), SCAN_THREADS, 0, (*parts, before, *states, segments, *sizes, *shape))


def key_state(k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None) -> PeakedSum:
    """Return the sum over all keys that key_mask admits."""
    device = runtime.limits()
    dtype = dtype_name(v)
    keys, map_code = side(k, k_spec, dtype, device)
    n, e, frequencies = keys.rows.x.shape[-2], v.shape[-1], keys.frequencies
    lead = merged_lead(keys.lead, v.shape[:-2], lead_of(key_mask, 1))
    rows, v = keys.rows.broadcast(lead), broadcast(v, lead, 2)
    code = linear_code(map_code, dtype, e, device)
    how = launch(math.prod(lead), n, e, frequencies, code, None, device)

    features = frequencies * map_code.parts
    peaks = features if map_code.per_feature else 1
    state = empty_state(lead, features, peaks, e, map_code.accumulator)
    several = how.slabs.count > 1
    parts = empty_state((*lead, how.slabs.count), features, peaks, e, map_code.accumulator) if several else state
    summarise(how, rows, v, keys.arguments, key_arguments(key_mask, lead), NULL, parts)
    if several:
        scan(how, parts, NULL, None, state, NULL, n)
    return state
