"""Count sketches in CUDA: a row's sketches are added up in shared memory and written once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array, Host, dtype_name
from kernattn.ops import _cuda

__all__ = ["Plan", "countsketch", "plan"]

WARPS = 8


@dataclass(frozen=True)
class Plan:
    """One launch of the kernel `countsketch`."""

    defines: tuple[str, ...]
    accumulator: str
    blocks: int
    shared_bytes: int
    inside: bool  # is a row's sketch in shared memory?


def plan(rows: int, copies: int, num_buckets: int, dtype: str, limits: _cuda.Limits) -> Plan:
    """Return the launch for `copies` sketches of each of `rows` rows."""
    accumulator = "double" if dtype == "float64" else "float"
    size = _cuda.pieces((copies * num_buckets, accumulator))
    inside = size <= limits.shared_bytes
    defines = (f"-DINPUT={_cuda.C_TYPES[dtype]}", f"-DOPERAND={accumulator}", "-DSPLIT=0", f"-DWARPS={WARPS}")
    return Plan(defines, accumulator, min(rows, 16 * limits.multiprocessors), size if inside else 0, inside)


def countsketch(x: Array, index: NDArray[np.int64], weight: Host, num_buckets: int, out: Array | None = None) -> Array:
    """Return p sketches of each row, (n, p, num_buckets)."""
    import cupy

    x = cupy.ascontiguousarray(x)
    rows, (copies, d) = math.prod(x.shape[:-1]), index.shape
    how = plan(rows, copies, num_buckets, dtype_name(x), _cuda.limits())
    real = "float64" if how.accumulator == "double" else "float32"
    shape = (*x.shape[:-1], copies, num_buckets)
    fits = out is not None and out.shape == shape and out.dtype == real and out.flags.c_contiguous
    sketch: Array = out if fits else cupy.empty(shape, dtype=real)
    if not how.inside:
        sketch[...] = 0
    if rows:
        constants = (_cuda.uploaded(index, "int32"), _cuda.uploaded(weight, real))
        sizes = (np.int64(rows), np.int32(d), np.int32(copies), np.int32(num_buckets), np.int32(how.inside))
        function = _cuda.kernel("countsketch", "countsketch", how.defines)
        _cuda.launch(function, (how.blocks,), 32 * WARPS, how.shared_bytes, (x, *constants, sketch, *sizes))
    if out is None or fits:
        return sketch
    out[...] = sketch
    return out
