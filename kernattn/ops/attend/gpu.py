"""Queries against a state in CUDA: a tile of rows a block, which reads the state once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.peaked import LogNormaliser, PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Plan", "attend", "plan"]


@dataclass(frozen=True)
class Plan:
    """One launch of the kernel `attend`."""

    code: _cuda_linear.LinearCode
    grid: tuple[int, int]
    shared_bytes: int


def plan(entries: int, n: int, e: int, code: _cuda_linear.LinearCode) -> Plan:
    """Return the launch for outputs (entries, n, e)."""
    accumulator, operand = code.map.accumulator, code.map.operand
    shared_bytes = _cuda.map_bytes(code.map, 1) + _cuda.pieces(
        (code.map.rows * code.phi_row, operand),
        (_cuda.FB * code.v_row, operand),
        *[(_cuda.FB, accumulator)] * 2,
        (code.map.rows, accumulator),
    )
    return Plan(code, (entries * _cuda.ceil_div(n, code.map.rows), _cuda.ceil_div(e, code.eb)), shared_bytes)


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, LogNormaliser | None]:
    """Return the output of each query, and its normaliser where it is wanted."""
    import cupy

    device = _cuda.limits()
    name = np.dtype(dtype).name
    queries, map_code = _cuda_linear.side(q, q_spec, name, device, normaliser)
    n, e = queries.rows.x.shape[-2], state.s.shape[-1]
    keys = state.s.shape[:-2]
    lead = _cuda_linear.merged_lead(queries.lead, keys)
    code = _cuda_linear.linear_code(map_code, name, e, device)
    how = plan(_cuda_linear.entries(lead), n, e, code)
    out = cupy.empty((*lead, n, e), dtype=dtype)
    log_z = _cuda_linear.normalisers((*lead, n), state.s.dtype, normaliser)
    function = _cuda.kernel("attend", "attend", code.defines)
    parts = tuple(cupy.ascontiguousarray(part) for part in state)
    outputs = (out, *_cuda_linear.pointers(log_z, 2))
    sizes = (np.int64(n), np.int32(e), *_cuda_linear.batch(lead, queries.lead, keys))
    arguments = (queries.rows.x, queries.rows.scale, *parts, *outputs, *queries.arguments, *sizes)
    _cuda.launch(function, how.grid, map_code.threads, how.shared_bytes, arguments)
    return out, log_z
