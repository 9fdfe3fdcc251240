"""One token of a short causal convolution in array-API."""

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn.ops.causal_conv.reference import finish


def causal_conv_step(state: Array, x: Array, weight: Array, bias: Array | None, silu: bool) -> tuple[Array, Array]:
    """Return the output of the token, and the tokens that are remembered now."""
    xp, taps = namespace(x=x), weight.shape[-1]
    dtype = accumulation_dtype(xp, x)
    last = xp.concat([state, xp.astype(x, state.dtype, copy=False)[..., None]], axis=-1)
    seen = xp.astype(last[..., last.shape[-1] - taps :], dtype, copy=False)
    out = xp.sum(seen * xp.astype(weight, dtype, copy=False), axis=-1)
    return finish(xp, out, bias, silu, x), last[..., 1:]
