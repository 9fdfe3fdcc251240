"""A short causal convolution in array-API: a product for each tap, of tokens that stand so far back."""

from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn.ops.causal.reference import count_segments


def causal_conv(x: Array, weight: Array, bias: Array | None, silu: bool, segment_ids: Array | None) -> Array:
    """Return the sums over taps of every token."""
    xp, (n, taps) = namespace(x=x), (x.shape[-2], weight.shape[-1])
    dtype = accumulation_dtype(xp, x)
    wide, weight = xp.astype(x, dtype, copy=False), xp.astype(weight, dtype, copy=False)
    segment = None if segment_ids is None else count_segments(xp, segment_ids)
    out = wide * weight[:, taps - 1]
    for back in range(1, min(taps, n)):
        earlier = xp.concat([xp.zeros_like(wide[..., :back, :]), wide[..., :-back, :]], axis=-2)
        if segment is not None:
            ours = xp.concat([segment[..., :back], segment[..., :-back]], axis=-1) == segment
            earlier = xp.where(ours[..., None], earlier, xp.zeros_like(earlier))
        out = out + earlier * weight[:, taps - 1 - back]
    return finish(xp, out, bias, silu, x)


def finish(xp: ModuleType, out: Array, bias: Array | None, silu: bool, like: Array) -> Array:
    """Return sums over taps as outputs: with their bias, through the activation, in the dtype of the inputs."""
    if bias is not None:
        out = out + xp.astype(bias, out.dtype, copy=False)
    if silu:
        fall = xp.exp(-xp.abs(out))
        out = out * xp.where(out < 0, fall, xp.ones_like(fall)) / (1 + fall)
    return xp.astype(out, like.dtype, copy=False)
