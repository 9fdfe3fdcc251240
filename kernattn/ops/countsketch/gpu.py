"""Count sketches in CUDA: every bucket is summed by one thread from the list of its columns, the same in every run."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options
from kernattn.ops._cuda.sketches import Staging, lists, staging

WARPS = 8
LINE = 2048  # buckets of a block, where a row has fewer


@dataclass(frozen=True)
class SketchLaunch:
    """One launch of the kernel `countsketch`."""

    defines: tuple[str, ...]
    accumulator: str
    blocks: int
    rows: Staging


def launch(rows: int, d: int, sketch: int, dtype: str, limits: runtime.Limits) -> SketchLaunch:
    """Return the launch for sketches of so many numbers of each of `rows` rows (d,)."""
    accumulator = accumulator_of(dtype)
    own = staging(rows, d, max(1, LINE // sketch), accumulator, limits.shared_bytes)
    flags = options(INPUT=C_TYPES[dtype], OPERAND=accumulator, SPLIT=0, WARPS=WARPS)
    return SketchLaunch(flags, accumulator, ceil_div(rows, own.group), own)


def countsketch(
    x: Array, index: NDArray[np.int64], weight: Float64, num_buckets: int, out: Array | None = None
) -> Array:
    x = cupy.ascontiguousarray(x)
    rows, (copies, d) = math.prod(x.shape[:-1]), index.shape
    real = "float64" if dtype_name(x) == "float64" else "float32"
    shape = (*x.shape[:-1], copies, num_buckets)
    fits = out is not None and out.shape == shape and out.dtype == real and out.flags.c_contiguous
    sketch: Array = out if fits else cupy.empty(shape, dtype=real)
    if rows:
        how = launch(rows, d, copies * num_buckets, dtype_name(x), runtime.limits())
        own = lists(index, weight, num_buckets, real)
        sizes = (np.int64(rows), *(np.int32(i) for i in (d, copies * num_buckets, how.rows.group, how.rows.inside)))
        kernel = runtime.Launch(how.defines, (how.blocks,), 32 * WARPS, how.rows.shared_bytes)
        kernel.start("countsketch", "countsketch", x, own.first, own.column, own.weight, sketch, *sizes)
    if out is None or fits:
        return sketch
    out[...] = sketch
    return out
