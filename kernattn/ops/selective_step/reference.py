"""One token of Mamba-2's state space in array-API."""

from kernattn._arrays.namespaces import Array, namespace


def selective_step(
    state: Array, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array | None
) -> tuple[Array, Array]:
    """Return the output of the token, and the state after it."""
    xp, heads, dtype = namespace(x=x), x.shape[-2], state.dtype
    wide, b, c = (xp.astype(y, dtype, copy=False) for y in (x, b, c))
    b, c = (xp.repeat(y, heads // y.shape[-2], axis=-2)[..., None, :] for y in (b, c))
    after = xp.exp(dt * a)[..., None, None] * state + (dt[..., None] * wide)[..., None] * b
    out = xp.sum(after * c, axis=-1)
    if d is not None:
        out = out + xp.astype(d, dtype, copy=False)[..., None] * wide
    return xp.astype(out, x.dtype, copy=False), after
