"""One token in CUDA: all vectors of a head in one kernel, then one pass over the states of all heads."""

import math
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, broadcast, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.linear import LinearCode, alike, both_sides, linear_code
from kernattn.ops._cuda.sizes import BYTES, ceil_div, pieces
from kernattn.ops.features.reference import features_of_side

WARPS = 8
COLUMNS = 32  # of the state that a block passes over


@dataclass(frozen=True)
class StepLaunch:
    """The launches of `prepare` and `stream`."""

    prepare: runtime.Launch
    stream: runtime.Launch


def launch(entries: int, e: int, code: LinearCode) -> StepLaunch:
    """Return the launches for states (entries, M, e)."""
    accumulator = code.map.accumulator
    wide = 16 // BYTES[accumulator] if e % (16 // BYTES[accumulator]) == 0 else 1
    rows = code.map.threads // (COLUMNS // wide)
    warps, tile = pieces((code.map.warps, accumulator)), pieces((rows * COLUMNS, accumulator))
    return StepLaunch(
        runtime.Launch(code.defines, (entries,), code.map.threads, warps),
        runtime.Launch(code.defines, (entries, ceil_div(e, COLUMNS)), code.map.threads, tile),
    )


def step(
    state: PeakedSum, q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None,
    k_spec: MapSpec | None, key_mask: Array | None, reuse_state: bool, out: Array | None = None,
) -> tuple[Array, PeakedSum]:  # fmt: skip
    """Only launch, from the second call on the arrays of a state on, and allocate or wait for nothing.

    That is where the state is reused, `out` is given, and the inputs are contiguous rows for a spec.
    """
    device = runtime.limits()
    dtype = dtype_name(v)
    q, k = _token(q), _token(k)
    if not alike(q_spec, k_spec):
        q, k, q_spec, k_spec = features_of_side(q, q_spec), features_of_side(k, k_spec), None, None
    queries, keys, map_code, _ = both_sides(q, k, q_spec, k_spec, dtype, device)
    e = v.shape[-1]
    key_lead = merged_lead(keys.lead, v.shape[:-1], state.s.shape[:-2], lead_of(key_mask, 0))
    lead = merged_lead(queries.lead, key_lead)
    rows, v = keys.rows.broadcast(key_lead), broadcast(v, key_lead, 1)
    old = PeakedSum(*(broadcast(part, key_lead, inner) for part, inner in zip(state, (2, 1, 1), strict=True)))
    whole = state.s.shape[:-2] == key_lead and all(part.flags.c_contiguous for part in state)
    new = state if reuse_state and whole else PeakedSum(*map(cupy.empty_like, old))
    code = linear_code(replace(map_code, warps=WARPS), dtype, e, device)
    entries = math.prod(key_lead)
    how = launch(entries, e, code)

    features = state.s.shape[-2]
    decay, fresh, weights, den = _vectors(new.s, math.prod(lead), new is state)
    out = cupy.empty((*lead, e), dtype=v.dtype) if out is None else out
    mask = NULL if key_mask is None else broadcast(key_mask, key_lead, 0).view(cupy.uint8)
    strides = batch(lead, queries.lead, key_lead)
    sides = (*queries.arguments, *keys.arguments)
    vectors = (old.z, old.peak, new.z, new.peak, decay, fresh, weights, den)
    how.prepare.start("step", "prepare", queries.rows.x, rows.x, rows.scale, *sides, mask, *vectors, *strides)
    given, sizes = (old.s, new.s, v, out, decay, fresh, weights, den, mask), (np.int32(features), np.int32(e))
    how.stream.start("step", "stream", *given, *sizes, *strides)
    return out, new


_between: dict[int, tuple[ref[Any], dict[int, tuple[Array, ...]]]] = {}


def _vectors(s: Array, outputs: int, keep: bool) -> tuple[Array, ...]:
    """Return room for what `prepare` hands to `stream`: decay, fresh (entries, M), weights (outputs, M), den (outputs).

    A state that is stepped in place keeps its room for as long as its s lives: two such steps of one state exclude each
    other anyway, and a graph that captured a step depends on the arrays of its state anyway.
    """
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
