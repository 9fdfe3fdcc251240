"""One token of Mamba-2's state space by Numba: one pass over each state."""

from functools import partial

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import accumulation, flat, narrow, nothing, plain
from kernattn.ops.selective_step.loops import advance_states

SECONDS_PER_NUMBER = 2e-10  # of a state, roughly: it decides when work is worth sharing


def selective_step(
    state: Array, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array | None
) -> tuple[Array, Array]:
    dtype, out = accumulation(x), np.empty(x.shape, accumulation(x))
    kept = plain(state, dtype)
    sizes = *state.shape[-3:], b.shape[-2]
    beside = nothing(dtype) if d is None else flat(d, dtype)
    given = (flat(y, dtype) for y in (x, dt, a, b, c))
    states = partial(advance_states, sizes, kept, *given, beside, out.reshape(-1))
    share(states, dt.size, state.size * SECONDS_PER_NUMBER)
    if not np.may_share_memory(kept, state):
        state[...] = kept.reshape(state.shape)
    return narrow(out, x.dtype), state
