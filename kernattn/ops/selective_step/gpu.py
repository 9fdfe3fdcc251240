"""One token of Mamba-2's state space in CUDA: one pass over each state, which is read and written once."""

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import of_one_type
from kernattn.ops._cuda.sizes import C_TYPES, REALS, accumulator_of, ceil_div, options

WARPS = 8


def launch(rows: int, dtype: str, given: str) -> runtime.Launch:
    """Return the launch for so many rows of states, b and c of a C type."""
    defines = options(INPUT=C_TYPES[dtype], OPERAND=accumulator_of(dtype), SPLIT=0, WARPS=WARPS, ROWS=given)
    return runtime.Launch(defines, (ceil_div(rows, WARPS),), 32 * WARPS, 0)


def selective_step(
    state: Array, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array | None
) -> tuple[Array, Array]:
    accumulator = accumulator_of(dtype_name(x))
    real, (heads, size, columns) = REALS[accumulator], state.shape[-3:]
    kept = cupy.ascontiguousarray(state.astype(real, copy=False))
    out = cupy.empty(x.shape, dtype=x.dtype)
    if x.size:
        kind, (added, read) = of_one_type(accumulator, b, c)
        steps, rates, beside = (
            NULL if y is None else cupy.ascontiguousarray(y.astype(real, copy=False)) for y in (dt, a, d)
        )
        sizes = np.int64(x.size), *(np.int32(i) for i in (heads, size, columns, b.shape[-2]))
        rows = cupy.ascontiguousarray(x)
        how = launch(x.size, dtype_name(x), kind)
        how.start("selective_step", "selective_step", kept, rows, steps, rates, added, read, beside, out, *sizes)
    if kept is not state:
        state[...] = kept
    return out, state
