"""One token of a short causal convolution in CUDA: states move on by one place as they are read."""

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.inputs import of_one_type
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options

WARPS = 4


def launch(count: int, dtype: str, state: str, weight: str) -> runtime.Launch:
    """Return the launch for so many channels of sequences, states of a dtype and taps of a C type."""
    defines = options(
        INPUT=C_TYPES[dtype], OPERAND=accumulator_of(dtype), SPLIT=0, WARPS=WARPS, STATE=C_TYPES[state], WEIGHT=weight
    )
    return runtime.Launch(defines, (ceil_div(count, 32 * WARPS),), 32 * WARPS, 0)


def causal_conv_step(state: Array, x: Array, weight: Array, bias: Array | None, silu: bool) -> tuple[Array, Array]:
    kept, rows = cupy.ascontiguousarray(state), cupy.ascontiguousarray(x)
    out = cupy.empty(x.shape, dtype=x.dtype)
    if x.size:
        kind, (taps, added) = of_one_type(accumulator_of(dtype_name(x)), weight, bias)
        how = launch(x.size, dtype_name(x), dtype_name(state), kind)
        sizes = np.int64(x.size), *(np.int32(i) for i in (x.shape[-1], state.shape[-1], weight.shape[-1], silu))
        how.start("causal_conv_step", "causal_conv_step", kept, rows, taps, added, out, *sizes)
    if kept is not state:
        state[...] = kept
    return out, state
