r"""Cotangents of exact attention in array-API, a block of queries after the other (Dao et al. 2022).

P = exp(s q.k - lse) and dS = P (g.v - g.o); dq = s dS k, dk = s dS^T q, dv = P^T g, ds = sum_i q_i.(dS k)_i.
"""

from __future__ import annotations

from kernattn._array import Array, accumulation_dtype, namespace, placement
from kernattn.ops.cotangents import onto
from kernattn.ops.peaked import finite
from kernattn.ops.plan import Plan

__all__ = ["block_softmax_vjp"]

BLOCK = 256


def block_softmax_vjp(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, out: Array, lse: Array, g: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the cotangents of q, k, v and the scale."""
    xp = namespace(q=q)
    dtype, kinds = accumulation_dtype(xp, q), (q.dtype, k.dtype, v.dtype)
    q, k, v, out, g = (xp.astype(x, dtype, copy=False) for x in (q, k, v, out, g))
    alive = xp.any(g != 0, axis=-1, keepdims=True) & xp.isfinite(lse)[..., None]
    out, g = (xp.where(alive, x, xp.zeros_like(x)) for x in (out, g))
    q = xp.where(onto(xp, xp.astype(alive, dtype), (*q.shape[:-1], 1)) > 0, q, xp.zeros_like(q))
    if key_mask is not None:
        some = onto(xp, xp.astype(key_mask, dtype), tuple(k.shape[:-1])) > 0
        k = xp.where(some[..., None], k, xp.zeros_like(k))
        v = xp.where(key_mask[..., None], v, xp.zeros_like(v))
    (n, _), (length, _) = q.shape[-2:], k.shape[-2:]
    dots = xp.sum(g * out, axis=-1, keepdims=True)
    across, values = xp.matrix_transpose(k), xp.matrix_transpose(v)
    dq, dk, dv, keys = [], 0.0, 0.0, xp.arange(length, **placement(q))
    for low in range(0, n, BLOCK):
        rows = (..., slice(low, min(low + BLOCK, n)), slice(None))
        scores = scale * xp.matmul(q[rows], across)  # (..., b, l)
        if key_mask is not None:
            scores = xp.where(key_mask[..., None, :], scores, -xp.inf)
        if plan.kind == "causal":
            first = low + length - n
            last = xp.arange(first, first + scores.shape[-2], **placement(q))[:, None]
            scores = xp.where(keys <= last, scores, -xp.inf)
        logs = scores - finite(xp, lse[..., None])[rows]
        weights = xp.exp(xp.minimum(logs, xp.zeros_like(logs)))
        weights = xp.where(alive[rows], weights, xp.zeros_like(weights))
        ds = weights * (xp.matmul(g[rows], values) - dots[rows])
        dq.append(xp.matmul(ds, k))
        dk = dk + xp.matmul(xp.matrix_transpose(ds), q[rows])
        dv = dv + xp.matmul(xp.matrix_transpose(weights), g[rows])
    of_scores = onto(xp, xp.concat(dq, axis=-2), tuple(q.shape))
    found = (scale * of_scores, scale * dk, dv)
    shapes = (tuple(x.shape) for x in (q, k, v))
    return (
        *(xp.astype(onto(xp, x, shape), kind, copy=False) for x, shape, kind in zip(found, shapes, kinds, strict=True)),
        xp.sum(q * of_scores),
    )
