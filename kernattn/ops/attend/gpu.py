"""Queries against a state in CUDA: a tile of rows a block, which reads the state once."""

import math
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, merged_lead
from kernattn.ops._cuda.linear import LinearCode, linear_code, normalisers, pointers, side
from kernattn.ops._cuda.maps import FB, map_bytes
from kernattn.ops._cuda.sizes import BYTES, ceil_div, pieces


def launch(entries: int, n: int, e: int, code: LinearCode) -> runtime.Launch:
    """Return the launch for outputs (entries, n, e)."""
    accumulator, operand = code.map.accumulator, code.map.operand
    weights = code.map.rows * code.phi_row if BYTES[operand] > 2 else 0  # pairs of 16 bits stay in registers
    shared_bytes = map_bytes(code.map, 1) + pieces(
        (weights, operand), (FB * code.v_row, operand), *[(FB, accumulator)] * 2, (code.map.rows, accumulator)
    )
    grid = (entries * ceil_div(n, code.map.rows), ceil_div(e, code.eb))
    return runtime.Launch(code.defines, grid, code.map.threads, shared_bytes)


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, Normaliser | None]:
    device = runtime.limits()
    name = np.dtype(dtype).name
    queries, map_code = side(q, q_spec, name, device, normaliser)
    n, e = queries.rows.x.shape[-2], state.s.shape[-1]
    keys = state.s.shape[:-2]
    lead = merged_lead(queries.lead, keys)
    code = linear_code(map_code, name, e, device)
    how = launch(math.prod(lead), n, e, code)
    out = cupy.empty((*lead, n, e), dtype=dtype)
    log_z = normalisers((*lead, n), state.s.dtype, normaliser)
    outputs = (out, *pointers(log_z, 2))
    sizes = (np.int64(n), np.int32(e), *batch(lead, queries.lead, keys))
    inputs = (queries.rows.x, queries.rows.scale, *pointers(state, 3))
    how.start("attend", "attend", *inputs, *outputs, *queries.arguments, *sizes)
    return out, log_z
