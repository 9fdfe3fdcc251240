"""Causal linear attention in CUDA. Slabs of rows are summarised and scanned, then a block walks along each.

Half of a block's warps make the features of queries, the other half those of keys. The state stays in registers where
it fits; it and a chunk's features are in shared memory where they fit, and in the L2 cache where they do not.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, broadcast, key_arguments, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.linear import (
    LinearCode,
    Slabs,
    alike,
    both_sides,
    cut,
    empty_state,
    linear_code,
    normalisers,
    pointers,
)
from kernattn.ops._cuda.maps import FB, map_bytes
from kernattn.ops._cuda.sizes import BYTES, ceil_div, options, pieces, row_length
from kernattn.ops.features.reference import features_of_side
from kernattn.ops.key_state import gpu as summaries

GROUPS = 2  # of warps: one makes the features of queries, one those of keys
REGISTERS = 64  # of a thread, for the state


@dataclass(frozen=True)
class WalkCode:
    """How `walk` is compiled."""

    linear: LinearCode
    held: int  # strips of 16 features whose sums each warp keeps in registers; 0: all are in memory
    maps: int = 1  # 2 where queries and keys are projected apart
    stream: bool = False  # are rows and frequencies copied ahead?

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*self.linear.defines, *options(HELD=self.held, MAPS=self.maps, STREAM=self.stream))


@dataclass(frozen=True)
class WalkLaunch:
    """The launch of `walk`, after the slabs' summaries where there is more than one slab."""

    code: WalkCode
    slabs: Slabs
    grid: tuple[int]
    shared_bytes: int
    state_room: int  # accumulators of device memory for states; 0: in shared memory
    phi_room: int  # operands of device memory for features; 0: in shared memory


def launch(entries: int, n: int, e: int, frequencies: int, code: WalkCode, limits: runtime.Limits) -> WalkLaunch:
    """Return the launch for outputs (entries, n, e)."""
    linear = code.linear
    e_blocks = ceil_div(e, linear.eb)
    state, phi = _rooms(code, frequencies)
    shared_bytes, state_inside, phi_inside = _share_memory(code, frequencies, limits)
    room = resident(shared_bytes, limits, linear.map.threads) * limits.multiprocessors  # blocks that run at a time
    slabs = cut(n, slabs_for(entries * e_blocks, room), linear.map.rows)
    workers = entries * slabs.count
    if not (state_inside and phi_inside):
        workers = min(workers, max(1, room // e_blocks))
    blocks = workers * e_blocks
    return WalkLaunch(
        code, slabs, (blocks,), shared_bytes, 0 if state_inside else blocks * state, 0 if phi_inside else blocks * phi
    )


@lru_cache(512)
def walk_code(code: LinearCode, d: int, frequencies: int, limits: runtime.Limits, maps: int = 1) -> WalkCode:
    """Return how `walk` is compiled for rows (n, d) and values of `code`.

    The state goes into registers where these and the shared memory have room for it; so does, of rows that are operands
    as they are, a second room for frequencies. With fewer columns of q and k at a time, more of the state and of the
    features has room. Where nothing has, chunks have half as many rows, or rows come in fewer columns still.
    """
    m = replace(code.map, warps=GROUPS * code.map.warps, groups=GROUPS)
    held = ceil_div(m.tiles(frequencies) * FB // 16, m.warps)
    spare = 0 if maps > 1 or m.accumulator == "double" else REGISTERS // 2 if m.per_feature else REGISTERS
    helds = (held, 0) if held * code.eb // 2 <= spare else (0,)
    widths = dict.fromkeys((m.db, min(m.db, 64))) if m.project else (m.db,)
    as_they_are = m.input == m.operand and (m.split or m.operand == m.accumulator)  # rows and frequencies are operands
    streams = (True, False) if m.project and maps == 1 and as_they_are else (False,)
    choices = [
        WalkCode(replace(code, map=replace(m, db=db)), held, maps, stream)
        for held, db, stream in product(helds, widths, streams)
        if not stream or d <= db
    ]

    def worth(code: WalkCode) -> tuple[bool, ...]:
        _, *inside = _share_memory(code, frequencies, limits)
        return *inside, code.held > 0, code.stream

    fitting = [x for x in choices if _share_memory(x, frequencies, limits)[0] <= limits.shared_bytes]
    if not fitting and (code.map.rows > 32 or code.map.db > 16):
        m = code.map
        less = replace(m, warps=m.warps // 2) if m.rows > 32 else replace(m, db=16)
        return walk_code(replace(code, map=less), d, frequencies, limits, maps)
    return max(fitting or choices[-1:], key=worth)


@lru_cache(512)
def _rooms(code: WalkCode, frequencies: int) -> tuple[int, int]:
    """Return the accumulators of a block's state outside registers, and the operands of a chunk's features."""
    m = code.linear.map
    tiles = m.tiles(frequencies)
    return tiles * FB * (3 if code.held else code.linear.eb + 8 + 3), tiles * m.rows * code.linear.phi_row


@lru_cache(512)
def _share_memory(code: WalkCode, frequencies: int, limits: runtime.Limits) -> tuple[int, bool, bool]:
    """Return bytes of shared memory, whether the state is there, and whether all features of a chunk are."""
    linear, m = code.linear, code.linear.map
    accumulator, operand = m.accumulator, m.operand
    one_tile = m.rows * linear.phi_row
    frequencies_again = (1 + m.split) * FB * row_length(operand, m.db) if code.stream else 0
    fixed = map_bytes(m, 2) + pieces(
        (frequencies_again, operand),
        (m.rows * linear.v_row, operand),
        (one_tile * (2 if code.held and not m.per_feature else 1), operand),
        ((m.tiles(frequencies) if code.held else 1) * FB * linear.v_row, operand),
        (m.rows * row_length(operand, m.rows), operand),
        (m.rows // 16 * FB, accumulator),
        *[(FB, accumulator)] * 4,
        *[(m.rows, accumulator)] * 2,
        (2 * m.rows, accumulator),
        (m.rows, accumulator),
        (m.rows, "float"),
        (1, "float"),
    )
    state, phi = _rooms(code, frequencies)
    all_phi, one_phi = pieces((phi, operand)), pieces((one_tile, operand))
    whole_state = pieces((state, accumulator))
    choices = [(fixed + all_phi + whole_state, True, True)]
    if not code.held:
        choices += [
            (fixed + one_phi + whole_state, True, False),
            (fixed + all_phi, False, True),
            (fixed + one_phi, False, False),
        ]
    return next((c for c in choices if c[0] <= limits.shared_bytes), choices[-1])


def resident(shared_bytes: int, limits: runtime.Limits, threads: int = 128) -> int:
    """Return how many blocks a multiprocessor holds, two at most; each takes another 1 KiB, and 256 threads fit."""
    return max(1, min(2, 256 // threads, (limits.shared_bytes + 1024) // (shared_bytes + 1024)))


@lru_cache(512)
def slabs_for(blocks: int, room: int) -> int:
    """Return into how many slabs to cut sequences that take `blocks` blocks uncut, when `room` run at a time.

    The time is that of the rounds of blocks, each shorter the more slabs there are. All slabs but the last are
    summarised first, which takes a third of the products and half of the traffic besides.
    """
    return min(
        range(1, max(1, 4 * room // blocks) + 1),
        key=lambda count: ceil_div(blocks * count, room) / count * (1 + 0.4 * (1 - 1 / count)),
    )


def causal(
    q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None, k_spec: MapSpec | None,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, normaliser: bool,
) -> tuple[Array, Normaliser | None, PeakedSum]:  # fmt: skip
    device = runtime.limits()
    dtype = dtype_name(v)
    if not alike(q_spec, k_spec):
        q, k, q_spec, k_spec = features_of_side(q, q_spec), features_of_side(k, k_spec), None, None
    queries, keys, map_code, maps = both_sides(q, k, q_spec, k_spec, dtype, device, normaliser)
    n, e, frequencies = keys.rows.x.shape[-2], v.shape[-1], keys.frequencies
    leads = (lead_of(x, 1) for x in (key_mask, segment_ids))
    key_lead = merged_lead(keys.lead, v.shape[:-2], *leads)
    lead = merged_lead(queries.lead, key_lead)
    rows, v = keys.rows.broadcast(key_lead), broadcast(v, key_lead, 2)
    linear = linear_code(map_code, dtype, e, device)
    code = walk_code(linear, keys.rows.x.shape[-1], frequencies, device, maps)
    how = launch(math.prod(lead), n, e, frequencies, code, device)
    mask = key_arguments(key_mask, key_lead)
    segments = NULL if segment_ids is None else broadcast(run_numbers(segment_ids), key_lead, 1)

    after = empty_state(key_lead, map_code, frequencies, e)
    start, several = state, how.slabs.count > 1
    if several:
        fine = summaries.finer(how.slabs, math.prod(key_lead), e, frequencies, linear, device)
        summary = summaries.launch(math.prod(key_lead), n, e, frequencies, linear, fine, device)
        parts = empty_state((*key_lead, summary.slabs.count), map_code, frequencies, e)
        before = cupy.empty_like(parts.peak)
        summaries.summarise(summary, rows, v, keys.arguments, mask, segments, parts)
        summaries.scan(summary, parts, before, start, None, segments, n)
        start = parts._replace(peak=before)

    out = cupy.empty((*lead, n, e), dtype=v.dtype)
    log_z = normalisers((*lead, n), after.s.dtype, normaliser)
    state_room = cupy.empty(how.state_room, dtype=after.s.dtype) if how.state_room else NULL
    phi_bytes = how.phi_room * BYTES[map_code.operand]
    phi_room = cupy.empty(phi_bytes, dtype=cupy.uint8) if phi_bytes else NULL
    inputs = (queries.rows.x, rows.x, v, queries.rows.scale, rows.scale)
    outputs = (out, *pointers(log_z, 2))
    starts = (np.int32(fine.count), np.int32(how.slabs.rows // fine.rows)) if several else (np.int32(0), np.int32(0))
    states = (*pointers(start, 3), *starts, *after, state_room, phi_room)
    slabs = (np.int32(math.prod(lead)), np.int32(how.slabs.count), np.int64(how.slabs.rows))
    sizes = (np.int64(n), np.int32(e), *slabs)
    strides = batch(lead, queries.lead, key_lead)
    sides = (*queries.arguments, *keys.arguments)
    arguments = (*inputs, *outputs, *sides, mask, segments, *states, *sizes, *strides)
    kernel = runtime.Launch(code.defines, how.grid, code.linear.map.threads, how.shared_bytes)
    kernel.start("causal", "walk", *arguments)
    return out, log_z, after


def run_numbers(ids: Array) -> Array:
    """Return the number of the run of equal ids that each token is in, int32."""
    starts = cupy.zeros(ids.shape, dtype=cupy.int32)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return cupy.cumsum(starts, axis=-1, dtype=cupy.int32)
