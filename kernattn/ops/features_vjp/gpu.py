"""Cotangents of rows in CUDA: a tile of rows a block, projected again, their cotangents summed in registers."""

import math

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.inputs import map_input
from kernattn.ops._cuda.maps import FB, MapCode, map_arguments, map_bytes, map_code
from kernattn.ops._cuda.sizes import ceil_div, options, pieces, row_length
from kernattn.ops.features_vjp.pulled import pulled_code, pulled_room, result_type, workers


def launch(rows: int, d: int, code: MapCode, result: str, learn: bool, limits: runtime.Limits) -> runtime.Launch:
    """Return the launch for x (rows, d)."""
    shared_bytes = map_bytes(code, 1) + pieces(
        (code.rows * row_length(code.operand, FB), code.operand),
        (code.rows, code.accumulator),
        (code.warps * FB, code.accumulator),
    )
    blocks = workers(ceil_div(rows, code.rows), learn, limits)
    columns = ceil_div(d, code.db) if code.project else 1
    defines = (*code.defines, *options(RESULT=result))
    return runtime.Launch(defines, (blocks, columns), code.threads, shared_bytes)


def features_vjp(x: Array, spec: MapSpec, g: Array, learn: bool) -> MapCotangent:
    device = runtime.limits()
    (n, d), lead = x.shape[-2:], tuple(x.shape[:-2])
    code = pulled_code(map_code(dtype_name(x), spec, spec.per_feature, d, device), d, device)
    rows = map_input(x, spec, code.accumulator)
    result, count = result_type(x, spec, lead, code.accumulator), math.prod(lead) * n
    how = launch(count, d, code, result, learn, device)
    room = pulled_room(x, spec, lead, code, result, how.grid[0], learn)
    inputs = (rows.x, cupy.ascontiguousarray(g), rows.scale)
    arguments = (*room.arguments, *map_arguments(spec, code, d))
    how.start("features_vjp", "features_vjp", *inputs, *arguments, np.int64(count))
    return room.cotangent(x, spec, True, learn)
