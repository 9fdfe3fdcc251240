"""A short causal convolution in CUDA: one pass over the tokens, whether these or channels are neighbours in memory.

An input is read once from memory, and once for each tap from a cache; an output is written once.
"""

from math import prod

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import broadcast
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import of_one_type
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options
from kernattn.ops.causal_conv.reference import causal_conv as reference
from kernattn.ops.gated.reference import segment_starts

WARPS = 8
LINES = 64  # of 32 numbers, that a block has
MOST_TAPS = 32


def launch(entries: int, n: int, channels: int, dtype: str, weight: str, taps: int, along: bool) -> runtime.Launch:
    """Return the launch for tokens (entries, n, channels) and taps of a C type, where tokens are neighbours or not."""
    defines = options(
        INPUT=C_TYPES[dtype], OPERAND=accumulator_of(dtype), SPLIT=0, WARPS=WARPS, WEIGHT=weight, TAPS=taps
    )
    inner, outer = (n, channels) if along else (channels, n)
    return runtime.Launch(defines, (entries * ceil_div(inner, 32) * ceil_div(outer, LINES),), 32 * WARPS, 0)


def causal_conv(x: Array, weight: Array, bias: Array | None, silu: bool, segment_ids: Array | None) -> Array:
    """Leave convolutions of many taps to array operations."""
    *lead, n, channels = x.shape
    if weight.shape[-1] > MOST_TAPS or not x.size:
        return reference(x, weight, bias, silu, segment_ids)
    turned = cupy.swapaxes(x, -1, -2)
    along = not x.flags.c_contiguous and turned.flags.c_contiguous
    rows = turned if along else cupy.ascontiguousarray(x)
    out = cupy.empty(rows.shape, dtype=x.dtype)
    kind, (taps, added) = of_one_type(accumulator_of(dtype_name(x)), weight, bias)
    fresh = NULL
    if segment_ids is not None:
        fresh = broadcast(segment_starts(cupy, segment_ids), tuple(lead), 1).view(cupy.uint8)
    how = launch(prod(lead), n, channels, dtype_name(x), kind, weight.shape[-1], along)
    sizes = np.int64(n), np.int32(channels), np.int32(silu), np.int32(along)
    how.start("causal_conv", "causal_conv", rows, taps, added, fresh, out, *sizes)
    return cupy.swapaxes(out, -1, -2) if along else out
