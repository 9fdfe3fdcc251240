"""Orthonormal rows in CUDA: a block of threads for each matrix, or cuSOLVER's QR."""

import math
from dataclasses import dataclass

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options, pieces, power_of_two
from kernattn.ops.orthogonalize.reference import by_qr

MOST_WARPS = 16


@dataclass(frozen=True)
class FrameLaunch:
    """One launch of the kernel `orthogonalize`."""

    defines: tuple[str, ...]
    accumulator: str
    warps: int
    stride: int  # numbers from row to row
    lanes: int  # that add up a product of two rows
    shared_bytes: int
    inside: bool  # is a matrix in shared memory?


def launch(rows: int, d: int, dtype: str, limits: runtime.Limits) -> FrameLaunch:
    """Return the launch for matrices (rows, d)."""
    accumulator = accumulator_of(dtype)
    warps = power_of_two(ceil_div(d, 32), 1, MOST_WARPS)
    stride = (d + 3) // 8 * 8 + 4  # at least d, and 4 (mod 8)
    sums = ((rows, accumulator), (MOST_WARPS, accumulator))
    size = pieces(*sums, (rows * stride, accumulator))
    inside = size <= limits.shared_bytes
    flags = options(INPUT=C_TYPES[dtype], OPERAND=accumulator, SPLIT=0, WARPS=MOST_WARPS)
    if inside:
        return FrameLaunch(flags, accumulator, warps, stride, 4, size, inside)
    return FrameLaunch(flags, accumulator, warps, d, 32, pieces(*sums), inside)


def orthogonalize(blocks: Array, method: str) -> Array:
    if method == "qr":
        return by_qr(blocks)
    x = cupy.ascontiguousarray(blocks)
    out = cupy.empty(x.shape, dtype=x.dtype)
    if out.size == 0:
        return out
    *lead, rows, d = x.shape
    how = launch(rows, d, dtype_name(x), runtime.limits())
    room = NULL
    if not how.inside:
        real = "float64" if how.accumulator == "double" else "float32"
        room = out if dtype_name(x) == real else cupy.empty(x.shape, dtype=real)
    kernel = runtime.Launch(how.defines, (math.prod(lead),), 32 * how.warps, how.shared_bytes)
    sizes = (np.int32(rows), np.int32(d), np.int32(how.stride), np.int32(how.lanes))
    kernel.start("orthogonalize", "orthogonalize", x, out, room, *sizes)
    return out
