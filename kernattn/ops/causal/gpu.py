"""Causal linear attention in CUDA. Slabs of rows are summarised and scanned, then a block walks along each.

The state and a chunk's features stay in shared memory where they fit, and in the L2 cache where they do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops._cuda import runtime
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
from kernattn.ops._cuda.sizes import BYTES, ceil_div, pieces, row_length
from kernattn.ops.features.reference import computed
from kernattn.ops.key_state import gpu as summaries
from kernattn.ops.peaked import Normaliser, PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Launch", "causal", "defines", "launch", "narrowed", "resident", "run_numbers", "slabs_for"]


@dataclass(frozen=True)
class Launch:
    """The launch of `walk`, after the slabs' summaries where there is more than one slab."""

    code: LinearCode
    slabs: Slabs
    grid: tuple[int]
    shared_bytes: int
    state_room: int  # accumulators of device memory for states; 0: in shared memory
    phi_room: int  # operands of device memory for features; 0: in shared memory


def launch(entries: int, n: int, e: int, frequencies: int, code: LinearCode, limits: runtime.Limits) -> Launch:
    """Return the launch for outputs (entries, n, e)."""
    e_blocks = ceil_div(e, code.eb)
    state, phi = _rooms(code, frequencies)
    shared_bytes, state_inside, phi_inside = _shared(code, frequencies, limits)
    room = resident(shared_bytes, limits) * limits.multiprocessors  # blocks that run at a time
    slabs = cut(n, slabs_for(entries * e_blocks, room), code.map.rows)
    workers = entries * slabs.count
    if not (state_inside and phi_inside):
        workers = min(workers, max(1, room // e_blocks))
    blocks = workers * e_blocks
    return Launch(
        code, slabs, (blocks,), shared_bytes, 0 if state_inside else blocks * state, 0 if phi_inside else blocks * phi
    )


def narrowed(code: LinearCode, frequencies: int, limits: runtime.Limits) -> LinearCode:
    """Return the code of blocks that hold fewer columns, where that pays.

    With half the columns of v two blocks share a multiprocessor, and each works while the other waits; both make the
    same features, so that this is for maps whose features cost little. With fewer columns of q and k at a time, more of
    the state and of the features has room.
    """

    def worth(code: LinearCode) -> tuple[bool, bool, int]:
        shared_bytes, state_inside, phi_inside = _shared(code, frequencies, limits)
        return state_inside, phi_inside, resident(shared_bytes, limits)

    if code.map.project:
        less = replace(code, map=replace(code.map, db=min(code.map.db, 64)))
    else:
        less = replace(code, eb=code.eb // 2 if code.eb == 128 else code.eb)
    return less if worth(less) > worth(code) else code


def _rooms(code: LinearCode, frequencies: int) -> tuple[int, int]:
    """Return the accumulators of a block's state and the operands of a chunk's features."""
    tiles = code.map.tiles(frequencies)
    return tiles * FB * (code.eb + 8 + 3), tiles * code.map.rows * code.phi_row


def _shared(code: LinearCode, frequencies: int, limits: runtime.Limits) -> tuple[int, bool, bool]:
    """Return bytes of shared memory, whether the state is there, and whether all features of a chunk are."""
    m = code.map
    accumulator, operand = m.accumulator, m.operand
    fixed = map_bytes(m, 2) + pieces(
        (m.rows * code.v_row, operand),
        (m.rows * code.phi_row, operand),
        (FB * code.v_row, operand),
        (m.rows * row_length(operand, m.rows), operand),
        (m.warps * FB, accumulator),
        *[(FB, accumulator)] * 4,
        *[(m.rows, accumulator)] * 2,
        (m.rows, "float"),
        (1, "float"),
    )
    state, phi = _rooms(code, frequencies)
    all_phi, one_phi = pieces((phi, operand)), pieces((m.rows * code.phi_row, operand))
    whole_state = pieces((state, accumulator))
    choices = [
        (fixed + all_phi + whole_state, True, True),
        (fixed + one_phi + whole_state, True, False),
        (fixed + all_phi, False, True),
        (fixed + one_phi, False, False),
    ]
    return next((c for c in choices if c[0] <= limits.shared_bytes), choices[-1])


def resident(shared_bytes: int, limits: runtime.Limits) -> int:
    """Return how many blocks a multiprocessor holds, two at most for their registers; each takes another 1 KiB."""
    return max(1, min(2, (limits.shared_bytes + 1024) // (shared_bytes + 1024)))


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
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    normaliser: bool,
) -> tuple[Array, Normaliser | None, PeakedSum]:
    """Return the outputs of all tokens, their normalisers where they are wanted, and the state after the last."""
    import cupy

    device = runtime.limits()
    dtype = dtype_name(v)
    if not alike(q_spec, k_spec):
        q, k, q_spec, k_spec = computed(q, q_spec), computed(k, k_spec), None, None
    queries, keys, map_code, maps = both_sides(q, k, q_spec, k_spec, dtype, device, normaliser)
    n, e, frequencies = keys.rows.x.shape[-2], v.shape[-1], keys.frequencies
    leads = (lead_of(x, 1) for x in (key_mask, segment_ids))
    key_lead = merged_lead(keys.lead, v.shape[:-2], *leads)
    lead = merged_lead(queries.lead, key_lead)
    rows, v = keys.rows.broadcast(key_lead), broadcast(v, key_lead, 2)
    code = narrowed(linear_code(map_code, dtype, e, device), frequencies, device)
    how = launch(math.prod(lead), n, e, frequencies, code, device)
    mask = key_arguments(key_mask, key_lead)
    segments = NULL if segment_ids is None else broadcast(run_numbers(segment_ids), key_lead, 1)

    features = frequencies * map_code.parts
    peaks = features if map_code.per_feature else 1
    after = empty_state(key_lead, features, peaks, e, map_code.accumulator)
    start = None if state is None else PeakedSum(*(cupy.ascontiguousarray(part) for part in state))
    several = how.slabs.count > 1
    if several:
        summary = summaries.launch(math.prod(key_lead), n, e, frequencies, code, how.slabs, device)
        parts = empty_state((*key_lead, how.slabs.count), features, peaks, e, map_code.accumulator)
        before = cupy.empty_like(parts.peak)
        summaries.summarise(summary, rows, v, keys.arguments, mask, segments, parts)
        summaries.scan(summary, parts, before, start, None, segments, n)
        start = parts._replace(peak=before)

    out = cupy.empty((*lead, n, e), dtype=v.dtype)
    log_z = normalisers((*lead, n), after.s.dtype, normaliser)
    state_room = cupy.empty(how.state_room, dtype=after.s.dtype) if how.state_room else NULL
    phi_bytes = how.phi_room * BYTES[map_code.operand]
    phi_room = cupy.empty(phi_bytes, dtype=cupy.uint8) if phi_bytes else NULL
    function = runtime.kernel("causal", "walk", defines(code, maps))
    inputs = (queries.rows.x, rows.x, v, queries.rows.scale, rows.scale)
    outputs = (out, *pointers(log_z, 2))
    states = (*pointers(start, 3), np.int32(several), *after, state_room, phi_room)
    sizes = (
        np.int64(n),
        np.int32(e),
        np.int32(math.prod(lead)),
        np.int32(how.slabs.count),
        np.int64(how.slabs.rows),
    )
    strides = batch(lead, queries.lead, key_lead)
    sides = (*queries.arguments, *keys.arguments)
    arguments = (*inputs, *outputs, *sides, mask, segments, *states, *sizes, *strides)
    runtime.start(function, how.grid, map_code.threads, how.shared_bytes, arguments)
    return out, log_z, after


def defines(code: LinearCode, maps: int) -> tuple[str, ...]:
    """Return the compiler's options of `walk`."""
    return (*code.defines, f"-DMAPS={maps}")


def run_numbers(ids: Array) -> Array:
    """Return the number of the run of equal ids that each token is in, int32."""
    import cupy

    starts = cupy.zeros(ids.shape, dtype=cupy.int32)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return cupy.cumsum(starts, axis=-1, dtype=cupy.int32)
