"""One token in CUDA: all vectors of a head in one kernel, then one pass over the states of all heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.features.reference import computed
from kernattn.ops.peaked import PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Plan", "plan", "step"]

WARPS = 8
COLUMNS = 32  # of the state that a block passes over


@dataclass(frozen=True)
class Plan:
    """The launches of `prepare` and `stream`."""

    code: _cuda_linear.LinearCode
    prepare_grid: tuple[int]
    stream_grid: tuple[int, int]
    prepare_bytes: int
    stream_bytes: int


def plan(entries: int, e: int, code: _cuda_linear.LinearCode) -> Plan:
    """Return the launches for states (entries, M, e)."""
    accumulator = code.map.accumulator
    wide = 16 // _cuda.BYTES[accumulator] if e % (16 // _cuda.BYTES[accumulator]) == 0 else 1
    rows = code.map.threads // (COLUMNS // wide)
    return Plan(
        code,
        (entries,),
        (entries, _cuda.ceil_div(e, COLUMNS)),
        _cuda.pieces((code.map.warps, accumulator)),
        _cuda.pieces((rows * COLUMNS, accumulator)),
    )


def step(
    state: PeakedSum,
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    key_mask: Array | None,
    reuse_state: bool,
    out: Array | None = None,
) -> tuple[Array, PeakedSum]:
    """Return the output of the token and the state after it.

    Where the state is reused, `out` is given, and the inputs are contiguous rows for a spec, every call but the first
    on this state's arrays only launches: it allocates nothing on the device, and waits for nothing.
    """
    import cupy

    device = _cuda.limits()
    dtype = dtype_name(v)
    q, k = _token(q), _token(k)
    if not _cuda_linear.alike(q_spec, k_spec):
        q, k, q_spec, k_spec = computed(q, q_spec), computed(k, k_spec), None, None
    queries, keys, map_code, _ = _cuda_linear.both_sides(q, k, q_spec, k_spec, dtype, device)
    e = v.shape[-1]
    key_lead = _cuda_linear.merged_lead(keys.lead, v.shape[:-1], state.s.shape[:-2], _cuda_linear.lead_of(key_mask, 0))
    lead = _cuda_linear.merged_lead(queries.lead, key_lead)
    rows, v = keys.rows.broadcast(key_lead), _cuda_linear.broadcast(v, key_lead, 1)
    old = PeakedSum(
        *(_cuda_linear.broadcast(part, key_lead, inner) for part, inner in zip(state, (2, 1, 1), strict=True))
    )
    whole = state.s.shape[:-2] == key_lead and all(part.flags.c_contiguous for part in state)
    new = state if reuse_state and whole else PeakedSum(*map(cupy.empty_like, old))
    code = _cuda_linear.linear_code(replace(map_code, warps=WARPS), dtype, e, device)
    entries = _cuda_linear.entries(key_lead)
    how = plan(entries, e, code)

    features = state.s.shape[-2]
    decay, fresh, weights, den = _vectors(new.s, _cuda_linear.entries(lead), new is state)
    out = cupy.empty((*lead, e), dtype=v.dtype) if out is None else out
    mask = _cuda.NULL if key_mask is None else _cuda_linear.broadcast(key_mask, key_lead, 0).view(cupy.uint8)
    strides = _cuda_linear.batch(lead, queries.lead, key_lead)
    sides = (*queries.arguments, *keys.arguments)
    vectors = (old.z, old.peak, new.z, new.peak, decay, fresh, weights, den)
    _cuda.launch(
        _cuda.kernel("step", "prepare", code.defines),
        how.prepare_grid,
        code.map.threads,
        how.prepare_bytes,
        (queries.rows.x, rows.x, rows.scale, *sides, mask, *vectors, *strides),
    )
    _cuda.launch(
        _cuda.kernel("step", "stream", code.defines),
        how.stream_grid,
        code.map.threads,
        how.stream_bytes,
        (old.s, new.s, v, out, decay, fresh, weights, den, mask, np.int32(features), np.int32(e), *strides),
    )
    return out, new


_between: dict[int, tuple[ref[Any], dict[int, tuple[Array, ...]]]] = {}


def _vectors(s: Array, outputs: int, keep: bool) -> tuple[Array, ...]:
    """Return room for what `prepare` hands to `stream`: decay, fresh (entries, M), weights (outputs, M), den (outputs).

    A state that is stepped in place keeps its room for as long as its s lives: two such steps of one state exclude each
    other anyway, and a graph that captured a step depends on the arrays of its state anyway.
    """
    import cupy

    if keep and id(s) in _between and outputs in _between[id(s)][1]:
        return _between[id(s)][1][outputs]
    sizes = (s.shape[:-1], s.shape[:-1], (outputs, s.shape[-2]), (outputs,))
    room = tuple(cupy.empty(size, dtype=s.dtype) for size in sizes)
    if keep:
        number = id(s)
        _between.setdefault(number, (ref(s, lambda _: _between.pop(number, None)), {}))[1][outputs] = room
    return room


def _token(x: Array | ScaledFeatures) -> Array | ScaledFeatures:
    """Return a token as a sequence of one."""
    if isinstance(x, ScaledFeatures):
        return ScaledFeatures(*(part[..., None, :] for part in x))
    return x[..., None, :]
