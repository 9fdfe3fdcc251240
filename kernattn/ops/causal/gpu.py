"""Causal linear attention in CUDA. Slabs of rows are summarised and scanned, then a block walks along each.

The state and a chunk's features stay in shared memory where they fit, and in the L2 cache where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.key_state import gpu as summaries
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Plan", "causal", "plan"]


@dataclass(frozen=True)
class Plan:
    """The launch of `walk`, after the slabs' summaries where there is more than one slab."""

    code: _cuda_linear.LinearCode
    slabs: _cuda_linear.Slabs
    grid: tuple[int, int]
    shared_bytes: int
    state_room: int  # accumulators of device memory for states; 0: in shared memory
    phi_room: int  # operands of device memory for features; 0: in shared memory


def plan(entries: int, n: int, e: int, frequencies: int, code: _cuda_linear.LinearCode, limits: _cuda.Limits) -> Plan:
    """Return the launch for outputs (entries, n, e)."""
    m = code.map
    accumulator, operand = m.accumulator, m.operand
    e_blocks = _cuda.ceil_div(e, code.eb)
    tiles = m.tiles(frequencies)
    fixed = _cuda.map_bytes(m, 2) + _cuda.pieces(
        (m.rows * code.v_row, operand),
        (m.rows * code.phi_row, operand),
        (_cuda.FB * code.v_row, operand),
        (m.rows * _cuda.row_length(operand, m.rows), operand),
        (m.warps * _cuda.FB, accumulator),
        *[(_cuda.FB, accumulator)] * 3,
        *[(m.rows, accumulator)] * 2,
        (m.warps, accumulator),
        *[(m.rows, "float")] * 2,
    )
    phi = m.rows * code.phi_row  # of one tile
    state = tiles * _cuda.FB * (code.eb + 8 + 5)
    all_phi, one_phi, whole_state = (
        _cuda.pieces((tiles * phi, operand)),
        _cuda.pieces((phi, operand)),
        _cuda.pieces((state, accumulator)),
    )
    choices = [  # bytes of shared memory, is the state there, are all features there
        (fixed + all_phi + whole_state, True, True),
        (fixed + one_phi + whole_state, True, False),
        (fixed + all_phi, False, True),
        (fixed + one_phi, False, False),
    ]
    shared_bytes, state_inside, phi_inside = next((c for c in choices if c[0] <= limits.shared_bytes), choices[-1])

    wanted = max(1, 2 * limits.multiprocessors // (entries * e_blocks))
    slabs = _cuda_linear.cut(n, wanted, m.rows)
    pieces_of_work = entries * slabs.count
    blocks = pieces_of_work
    if not (state_inside and phi_inside):
        blocks = min(blocks, max(1, 2 * limits.multiprocessors // e_blocks))
    return Plan(
        code,
        slabs,
        (blocks, e_blocks),
        shared_bytes,
        0 if state_inside else blocks * e_blocks * state,
        0 if phi_inside else blocks * e_blocks * tiles * phi,
    )


def causal(
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    spec: MapSpec | None,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Array, PeakedSum]:
    """Return the outputs of all tokens and the state after the last."""
    import cupy

    device = _cuda.limits()
    dtype = dtype_name(v)
    queries, map_code = _cuda_linear.rows_of(q, spec, dtype, device)
    keys, _ = _cuda_linear.rows_of(k, spec, dtype, device)
    n, d = keys.x.shape[-2:]
    leads = (_cuda_linear.lead_of(x, 1) for x in (key_mask, segment_ids))
    key_lead = _cuda_linear.merged_lead(keys.x.shape[:-2], v.shape[:-2], *leads)
    lead = _cuda_linear.merged_lead(queries.x.shape[:-2], key_lead)
    keys, v = keys.broadcast(key_lead), _cuda_linear.broadcast(v, key_lead, 2)
    arguments = _cuda.map_arguments(spec, map_code, d)
    frequencies, e = int(arguments[-2]), v.shape[-1]
    code = _cuda_linear.linear_code(map_code, dtype, e, device)
    how = plan(_cuda_linear.entries(lead), n, e, frequencies, code, device)
    mask = _cuda_linear.key_arguments(key_mask, key_lead)
    segments = _cuda.NULL if segment_ids is None else _cuda_linear.broadcast(run_numbers(segment_ids), key_lead, 1)

    features = frequencies * map_code.parts
    peaks = features if map_code.per_feature else 1
    after = _cuda_linear.empty_state(key_lead, features, peaks, e, map_code.accumulator)
    start = None if state is None else PeakedSum(*(cupy.ascontiguousarray(part) for part in state))
    several = how.slabs.count > 1
    if several:
        summary = summaries.plan(_cuda_linear.entries(key_lead), n, e, frequencies, code, how.slabs, device)
        parts = _cuda_linear.empty_state((*key_lead, how.slabs.count), features, peaks, e, map_code.accumulator)
        before = cupy.empty_like(parts.peak)
        summaries.summarise(summary, keys, v, arguments, mask, segments, parts)
        summaries.scan(summary, parts, before, start, after, segments, n, True)
        start = parts._replace(peak=before)

    out = cupy.empty((*lead, n, e), dtype=v.dtype)
    real = after.s.dtype
    state_room = cupy.empty(how.state_room, dtype=real) if how.state_room else _cuda.NULL
    phi_bytes = how.phi_room * _cuda.BYTES[map_code.operand]
    phi_room = cupy.empty(phi_bytes, dtype=cupy.uint8) if phi_bytes else _cuda.NULL
    null = (_cuda.NULL,) * 3
    function = _cuda.kernel("causal", "walk", code.defines)
    inputs = (queries.x, keys.x, v, keys.scale, out, *arguments, mask, segments)
    states = (
        *(null if start is None else start),
        np.int32(several),
        *(null if several else after),
        state_room,
        phi_room,
    )
    sizes = (
        np.int64(n),
        np.int32(e),
        np.int32(_cuda_linear.entries(lead)),
        np.int32(how.slabs.count),
        np.int64(how.slabs.rows),
    )
    strides = _cuda_linear.batch(lead, queries.x.shape[:-2], key_lead)
    _cuda.launch(function, how.grid, map_code.threads, how.shared_bytes, (*inputs, *states, *sizes, *strides))
    return out, after


def run_numbers(ids: Array) -> Array:
    """Return the number of the run of equal ids that each token is in, int32."""
    import cupy

    starts = cupy.zeros(ids.shape, dtype=cupy.int32)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    return cupy.cumsum(starts, axis=-1, dtype=cupy.int32)
