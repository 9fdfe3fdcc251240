"""Sums of outer products of features in CUDA: tiles made and multiplied in shared memory, phi never written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.spec import PER_FEATURE, MapSpec

__all__ = ["Plan", "gram", "plan"]


@dataclass(frozen=True)
class Plan:
    """One launch of the kernel `gram`."""

    code: _cuda.MapCode
    blocks: int
    shared_bytes: int


def plan(entries: int, frequencies: int, columns: int, code: _cuda.MapCode) -> Plan:
    """Return the launch for x (entries, n, d) and y (entries, n, columns)."""
    tiles = code.tiles(frequencies)
    tile = (code.rows * _cuda.row_length(code.operand, _cuda.FB), code.operand)
    shared_bytes = _cuda.map_bytes(code, 1) + _cuda.pieces(tile, tile, (code.rows, code.accumulator))
    return Plan(code, entries * tiles * (tiles + _cuda.ceil_div(columns, _cuda.FB)), shared_bytes)


def gram(x: Array, y: Array, spec: MapSpec | None) -> tuple[Array, Array]:
    """Return phi^T phi (..., M, M) and phi^T y (..., M, c)."""
    import cupy

    device = _cuda.limits()
    lead = _cuda_linear.merged_lead(x.shape[:-2], y.shape[:-2])
    x, y = _cuda_linear.broadcast(x, lead, 2), _cuda_linear.broadcast(y, lead, 2)
    (n, d), c = x.shape[-2:], y.shape[-1]
    code = _cuda.map_code(dtype_name(x), spec, spec is not None and spec.kind in PER_FEATURE, d, device)
    arguments = _cuda.map_arguments(spec, code, d)
    frequencies = int(arguments[-2])
    how = plan(_cuda_linear.entries(lead), frequencies, c, code)
    features = frequencies * code.parts
    real = cupy.float64 if code.accumulator == "double" else cupy.float32
    outer, moment = cupy.empty((*lead, features, features), dtype=real), cupy.empty((*lead, features, c), dtype=real)
    function = _cuda.kernel("gram", "gram", code.defines)
    sizes = (np.int64(n), np.int32(c))
    _cuda.launch(function, (how.blocks,), code.threads, how.shared_bytes, (x, y, outer, moment, *arguments, *sizes))
    return outer, moment
