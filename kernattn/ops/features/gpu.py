"""Features in CUDA: a tile of rows a block, projected on tensor cores where the dtype allows, written once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda
from kernattn.ops.features.chains import FASTER_ABOVE, fast
from kernattn.ops.features.reference import features as composed
from kernattn.ops.hadamard.gpu import chain_features
from kernattn.ops.spec import MapSpec

__all__ = ["Plan", "features", "plan"]


@dataclass(frozen=True)
class Plan:
    """One launch of the kernel `features`."""

    code: _cuda.MapCode
    grid: tuple[int, int]
    shared_bytes: int


def plan(rows: int, d: int, frequencies: int, code: _cuda.MapCode, limits: _cuda.Limits) -> Plan:
    """Return the launch for x (rows, d) and a map of `frequencies`."""
    tiles = _cuda.ceil_div(rows, code.rows)
    blocks = _cuda.ceil_div(frequencies, _cuda.FB)
    spread = min(blocks, max(1, _cuda.ceil_div(4 * limits.multiprocessors, tiles)))
    shared_bytes = _cuda.map_bytes(code, 1) + _cuda.pieces(
        (code.rows * _cuda.row_length(code.input, _cuda.FB), code.input), (code.rows, code.accumulator)
    )
    return Plan(code, (tiles, spread), shared_bytes)


def features(x: Array, spec: MapSpec) -> Array:
    """Return phi (..., n, M) in the dtype of x."""
    import cupy

    if spec.row_form is not None:  # the kernel has no such log scale
        return composed(x, spec)
    chains = fast(spec.omega, FASTER_ABOVE["gpu"])
    if chains is not None:
        return chain_features(x, chains, spec.unprojected)
    x = cupy.ascontiguousarray(x)
    rows, d = math.prod(x.shape[:-1]), x.shape[-1]
    device = _cuda.limits()
    code = _cuda.map_code(dtype_name(x), spec, spec.per_feature, d, device)
    phi = cupy.empty((*x.shape[:-1], spec.num_features_of(d)), dtype=x.dtype)
    if phi.size == 0:
        return phi
    arguments = _cuda.map_arguments(spec, code, d)
    how = plan(rows, d, int(arguments[-2]), code, device)
    function = _cuda.kernel("features", "features", code.defines)
    _cuda.launch(function, how.grid, code.threads, how.shared_bytes, (x, phi, *arguments, np.int64(rows)))
    return phi
