"""One token beside a window in array-API: the op of a token for what leaves it, then both parts joined."""

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, largest, namespace
from kernattn._maps.spec import MapSpec
from kernattn._sums.peaked import PeakedSum
from kernattn.ops.attend.reference import attend
from kernattn.ops.hybrid.join import exact, shares_of
from kernattn.ops.step.reference import step


def window_step(
    state: PeakedSum, k_before: Array, v_before: Array, present: Array, q: Array, k: Array, v: Array, q_spec: MapSpec,
    k_spec: MapSpec, scale: float, key_mask: Array | None, near_bias: Array | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the output of the token, and what is remembered after it."""
    xp, dtype = namespace(v=v), v.dtype
    wide, lead = accumulation_dtype(xp, v), present.shape[:-1]
    here = xp.astype(xp.ones_like(present[..., 0]), xp.bool) if key_mask is None else xp.broadcast_to(key_mask, lead)
    leaves = present[..., 0] & here
    _, after = step(state, q, k_before[..., 0, :], v_before[..., 0, :], q_spec, k_spec, leaves, False)
    new = (xp.broadcast_to(x, (*lead, x.shape[-1]))[..., None, :] for x in (k, v))
    rows = [xp.concat([x[..., 1:, :], y], axis=-2) for x, y in zip((k_before, v_before), new, strict=True)]
    seen = xp.concat([present[..., 1:], here[..., None]], axis=-1)
    keys, values = (xp.astype(x, wide, copy=False) for x in rows)
    query = xp.astype(q, wide, copy=False)[..., None, :]
    far, z = attend(after, query, q_spec, query.dtype, True)
    assert z is not None
    keys = xp.where(seen[..., None], keys, xp.zeros_like(keys))
    values = xp.where(seen[..., None], values, xp.zeros_like(values))
    scores = xp.where(seen, scale * xp.vecdot(query, keys), -xp.inf)
    top = xp.max(scores, axis=-1, keepdims=True)
    weights = xp.exp(scores - xp.where(top == -xp.inf, xp.zeros_like(top), top))
    total = xp.sum(weights, axis=-1, keepdims=True)
    near = xp.sum(weights[..., None] * values, axis=-2) / xp.where(total == 0, xp.ones_like(total), total)
    lse = xp.where(total == 0, -xp.inf, top + xp.log(xp.where(total == 0, xp.ones_like(total), total)))
    (share, rest), _ = shares_of(xp, exact(xp, lse, near_bias), z)
    out = share * near + rest * far[..., 0, :]
    if dtype != wide:
        out = xp.astype(xp.clip(out, -largest(dtype), largest(dtype)), dtype)
    out = xp.where(here[..., None], out, xp.zeros_like(out))
    kept = (xp.where(here[..., None, None], x, y) for x, y in zip(rows, (k_before, v_before), strict=True))
    return out, after, *kept, xp.where(here[..., None], seen, present)
