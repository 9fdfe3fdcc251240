"""The summary of keys in CUDA: a block a slab of rows sums as many features as it can; then a scan over the slabs."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.axes import broadcast, key_arguments, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import MapInput
from kernattn.ops._cuda.linear import (
    SLAB_TILES,
    LinearCode,
    Slabs,
    cut,
    empty_state,
    linear_code,
    pointers,
    side,
)
from kernattn.ops._cuda.maps import FB, map_bytes
from kernattn.ops._cuda.sizes import ceil_div, options, pieces

SCAN_THREADS = 256
REGISTERS = 128  # of a thread, for sums


@dataclass(frozen=True)
class SummaryCode:
    """How `summarise` is compiled."""

    linear: LinearCode
    held: int  # strips of 16 features that each warp sums
    scaled: bool = False  # do rows come with log scales of their own, whatever the map?

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*self.linear.defines, *options(HELD=self.held, SCALED=self.scaled))

    @property
    def span(self) -> int:
        """Tiles of features of a block."""
        return self.held * self.linear.map.warps * 16 // FB

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory."""
        linear, m = self.linear, self.linear.map
        return map_bytes(m, 1) + pieces(
            (m.rows * linear.v_row, m.operand),
            (self.span * m.rows * linear.phi_row, m.operand),
            (m.rows, m.accumulator),
            (m.rows, "float"),
            (m.warps * FB, m.accumulator),
            *[(self.span * FB, m.accumulator)] * 3,
        )


@lru_cache(512)
def summary_code(code: LinearCode, frequencies: int, limits: runtime.Limits, scaled: bool = False) -> SummaryCode:
    """Return how `summarise` is compiled: a block reads its values once for all the features that it sums."""
    m, choices = code.map, []
    words = 2 if m.accumulator == "double" else 1
    for warps in (2 * m.warps, m.warps):
        linear = replace(code, map=replace(m, warps=warps))
        needed = ceil_div(m.tiles(frequencies) * FB // 16, warps)
        most = min(needed, REGISTERS // words * 2 // code.eb)
        choices += [SummaryCode(linear, held, scaled) for held in range(1, most + 1)]
    fitting = [x for x in choices if x.shared_bytes <= limits.shared_bytes]
    return max(fitting or choices[-1:], key=lambda x: (min(x.span, m.tiles(frequencies)), x.linear.map.warps))


@dataclass(frozen=True)
class SummaryLaunch:
    """The launches of `summarise` and, over more than one slab, of `scan`."""

    code: SummaryCode
    slabs: Slabs
    summarised: int  # slabs of each entry, the first ones
    grid: tuple[int]
    shared_bytes: int
    scan_blocks: int  # of each entry
    entries: int


def launch(
    entries: int, n: int, e: int, frequencies: int, code: LinearCode, slabs: Slabs | None, limits: runtime.Limits,
    scaled: bool = False,
) -> SummaryLaunch:  # fmt: skip
    """Return the launches for k (entries, n, d), v (entries, n, e); the last of slabs that are given is left out."""
    how = summary_code(code, frequencies, limits, scaled)
    summarised = 0 if slabs is None else slabs.count - 1
    blocks = ceil_div(code.map.tiles(frequencies), how.span) * ceil_div(e, code.eb)
    if slabs is None:
        slabs = cut(n, max(1, 2 * limits.multiprocessors // (entries * blocks)), how.linear.map.rows)
        summarised = slabs.count
    features = frequencies * code.map.parts
    scan_blocks = ceil_div(features * (e + 1), SCAN_THREADS)
    return SummaryLaunch(
        how, slabs, summarised, (entries * summarised * blocks,), how.shared_bytes, scan_blocks, entries
    )


@lru_cache(512)
def finer(slabs: Slabs, entries: int, e: int, frequencies: int, code: LinearCode, limits: runtime.Limits) -> Slabs:
    """Return slabs cut into equal parts, as many as fill the device while all but the last are summarised.

    The last is a slab still: nothing of it is summarised.
    """
    how = summary_code(code, frequencies, limits)
    tile = how.linear.map.rows
    blocks = entries * (slabs.count - 1) * ceil_div(code.map.tiles(frequencies), how.span) * ceil_div(e, code.eb)
    most = min(2 * limits.multiprocessors // max(1, blocks), slabs.rows // (SLAB_TILES * tile))
    parts = max((x for x in range(1, most + 1) if slabs.rows % (x * tile) == 0), default=1)
    return Slabs((slabs.count - 1) * parts + 1, slabs.rows // parts)


def summarise(
    how: SummaryLaunch,
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
    n, e = v.shape[-2:]
    slabs = (np.int32(how.slabs.count), np.int32(how.summarised), np.int64(how.slabs.rows))
    sizes = (np.int64(n), np.int32(e), *slabs, np.int32(reverse))
    kernel = runtime.Launch(how.code.defines, how.grid, how.code.linear.map.threads, how.shared_bytes)
    kernel.start("key_state", "summarise", rows.x, v, rows.scale, h, *arguments, mask, segments, *into, *sizes)


def scan(
    how: SummaryLaunch,
    parts: PeakedSum,
    before: Any,
    start: PeakedSum | None,
    end: PeakedSum | None,
    segments: Any,
    n: int,
    reverse: bool = False,
) -> None:
    """Launch `scan`: all slabs merged into `end`, or without it what each finds before it into `parts` and `before`."""
    features, e = parts.s.shape[-2:]
    states = (*pointers(start, 3), *pointers(end, 3))
    sizes = (np.int64(n), np.int32(how.slabs.count), np.int64(how.slabs.rows))
    shape = map(np.int32, (features, e, parts.peak.shape[-1], end is None, how.scan_blocks, reverse))
    kernel = runtime.Launch(how.code.defines, (how.entries * how.scan_blocks,), SCAN_THREADS, 0)
    kernel.start("key_state", "scan", *parts, before, *states, segments, *sizes, *shape)


def summary(
    rows: MapInput, v: Array, arguments: tuple[Any, ...], mask: Any, code: LinearCode, frequencies: int, h: Any = NULL
) -> PeakedSum:
    """Return the sums that rows with values (*lead, n, e) write, those of features times h (*lead, n) among them."""
    lead, (n, e) = tuple(v.shape[:-2]), v.shape[-2:]
    how = launch(math.prod(lead), n, e, frequencies, code, None, runtime.limits(), rows.scale is not NULL)
    total = empty_state(lead, code.map, frequencies, e)
    several = how.slabs.count > 1
    parts = empty_state((*lead, how.slabs.count), code.map, frequencies, e) if several else total
    summarise(how, rows, v, arguments, mask, NULL, parts, h)
    if several:
        scan(how, parts, NULL, None, total, NULL, n)
    return total


def key_state(k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None) -> PeakedSum:
    device = runtime.limits()
    dtype = dtype_name(v)
    keys, map_code = side(k, k_spec, dtype, device)
    lead = merged_lead(keys.lead, v.shape[:-2], lead_of(key_mask, 1))
    rows, v = keys.rows.broadcast(lead), broadcast(v, lead, 2)
    code = linear_code(map_code, dtype, v.shape[-1], device)
    return summary(rows, v, keys.arguments, key_arguments(key_mask, lead), code, keys.frequencies)
