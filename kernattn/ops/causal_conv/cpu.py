"""A short causal convolution by Numba: one pass over the tokens."""

from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, flat, has_bits, narrow, nothing, room, rows, written
from kernattn.ops.causal_conv.loops import convolve
from kernattn.ops.gated.reference import segment_starts

SECONDS_PER_OUTPUT = 1e-9  # roughly: it decides when work is worth sharing


def causal_conv(x: Array, weight: Array, bias: Array | None, silu: bool, segment_ids: Array | None) -> Array:
    dtype, (*lead, n, channels) = accumulation(x), x.shape
    fresh = NO_MASK
    if segment_ids is not None:
        fresh = flat(np.broadcast_to(segment_starts(np, segment_ids), (*lead, n)), bool)
    out, by_tap = room(x.shape, x.dtype if has_bits(x, dtype) else dtype), flat(np.asarray(weight).T, dtype)
    added: NDArray[np.floating] = nothing(dtype) if bias is None else flat(bias, dtype)
    sizes = n, channels, weight.shape[-1]
    tokens = partial(convolve, sizes, rows(x, dtype), by_tap, added, silu, fresh, written(out, dtype))
    share(tokens, prod(lead) * n, out.size * SECONDS_PER_OUTPUT)
    return narrow(out, x.dtype)
