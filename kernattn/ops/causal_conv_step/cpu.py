"""One token of a short causal convolution by Numba: states move on by one place as they are read."""

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.ops._numba.tiles.layout import accumulation, flat, has_bits, narrow, nothing, plain, token_rows, written
from kernattn.ops.causal_conv_step.loops import advance_taps


def causal_conv_step(state: Array, x: Array, weight: Array, bias: Array | None, silu: bool) -> tuple[Array, Array]:
    dtype = accumulation(x)
    kept, out = plain(state, dtype), np.empty(x.shape, x.dtype if has_bits(x, dtype) else dtype)
    sizes = weight.shape[0], state.shape[-1], weight.shape[-1]
    added = nothing(dtype) if bias is None else flat(bias, dtype)
    advance_taps(sizes, kept, token_rows(x, dtype), flat(weight, dtype), added, silu, written(out, dtype))
    if not np.may_share_memory(kept, state):
        state[...] = kept.reshape(state.shape)
    return narrow(out, x.dtype), state
