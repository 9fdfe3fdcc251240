r"""Cotangents of exact attention in array-API, a block of queries after the other (Dao et al. 2022).

P = exp(s q.k - lse) and dS = P (g.v - g.o); dq = s dS k, dk = s dS^T q, dv = P^T g, ds = sum_i q_i.(dS k)_i.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from kernattn._array import Array, accumulation_dtype, anywhere, namespace
from kernattn.ops.block_softmax.far_reference import far_rows, far_weights, hidden
from kernattn.ops.block_softmax.reference import cut_product
from kernattn.ops.cotangents import onto
from kernattn.ops.peaked import finite
from kernattn.ops.plan import Plan

__all__ = ["block_softmax_vjp"]

BLOCK = 256
PRECISE = 2.0**-10  # the relative error of a weight, from the rounding of its log normaliser


def block_softmax_vjp(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, out: Array, lse: Array, g: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the cotangents of q, k, v and the scale."""
    xp = namespace(q=q)
    dtype, kinds = accumulation_dtype(xp, q), (q.dtype, k.dtype, v.dtype)
    q, k, v, out, g = (xp.astype(x, dtype, copy=False) for x in (q, k, v, out, g))
    alive = xp.any(g != 0, axis=-1, keepdims=True) & (lse != -xp.inf)[..., None]
    out, g = (xp.where(alive, x, xp.zeros_like(x)) for x in (out, g))
    q = xp.where(onto(xp, xp.astype(alive, dtype), (*q.shape[:-1], 1)) > 0, q, xp.zeros_like(q))
    if key_mask is not None:
        some = onto(xp, xp.astype(key_mask, dtype), tuple(k.shape[:-1])) > 0
        k = xp.where(some[..., None], k, xp.zeros_like(k))
        v = xp.where(key_mask[..., None], v, xp.zeros_like(v))
    n, length = q.shape[-2], k.shape[-2]
    before = length - n if plan.kind == "causal" else None
    far = _far(xp, q, k, scale, before, key_mask, lse, alive[..., 0])
    near = q * scale if far is None else xp.where(far[..., None], xp.zeros_like(q), q * scale)
    dots = xp.sum(g * out, axis=-1, keepdims=True)
    dq, dk, dv = [], 0.0, 0.0
    for low in range(0, n, BLOCK):
        rows = (..., slice(low, min(low + BLOCK, n)), slice(None))
        position = None if before is None else before + low
        scores = hidden(xp, xp.matmul(near[rows], xp.matrix_transpose(k)), 0, position, key_mask)  # (..., b, l)
        seen, dot = (scores != -xp.inf) & alive[rows], dots[rows]
        logs = scores - finite(xp, lse[..., None])[rows]
        weights = xp.where(seen, xp.exp(xp.minimum(logs, xp.zeros_like(logs))), xp.zeros_like(logs))
        of_weights = xp.matmul(g[rows], xp.matrix_transpose(v))
        if far is not None:
            there = far[..., None][rows]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                shares, _ = far_weights(xp, q[rows], k, scale, position, key_mask)
            weights, seen = xp.where(there, shares, weights), seen | (shares > 0)
            dot = xp.where(there, xp.sum(weights * of_weights, axis=-1, keepdims=True), dot)
        slopes = xp.where(seen, weights * (of_weights - dot), xp.zeros_like(weights))
        dq.append(xp.matmul(slopes, k) if position is None else cut_product(xp, slopes, k, position))
        dk = dk + _told(xp, slopes, q[rows] * scale, position)
        dv = dv + _told(xp, weights, g[rows], position)
    of_queries = xp.concat(dq, axis=-2)
    of_queries = xp.where(alive, of_queries, xp.zeros_like(of_queries))
    of_scores = onto(xp, of_queries, tuple(q.shape))
    found = (scale * of_scores, dk, dv)
    shapes = (tuple(x.shape) for x in (q, k, v))
    return (
        *(xp.astype(onto(xp, x, shape), kind, copy=False) for x, shape, kind in zip(found, shapes, kinds, strict=True)),
        xp.sum(q * of_scores),
    )


def _far(
    xp: ModuleType, q: Array, k: Array, scale: float, before: int | None, mask: Array | None, lse: Array, alive: Array
) -> Array | None:
    """Return which rows (..., n) may overflow, or feel the rounding of their normaliser; None where there are none."""
    far = xp.isfinite(lse) & (xp.abs(lse) >= PRECISE / float(xp.finfo(lse.dtype).eps))
    may_overflow = far_rows(xp, q, k, xp.zeros_like(k[..., :1]), scale, before, mask)
    far = alive & (far if may_overflow is None else far | may_overflow)
    return far if anywhere(far) else None


def _told(xp: ModuleType, weights: Array, x: Array, position: int | None) -> Array:
    """Return weights^T x, (..., l, c), of weights (..., n, l), where key j reads the rows from j - position on."""
    weights = xp.matrix_transpose(weights)
    if position is None:
        return xp.matmul(weights, x)
    length, n = weights.shape[-2:]
    backwards = cut_product(xp, xp.flip(weights, axis=(-2, -1)), xp.flip(x, axis=-2), n - length + position)
    return xp.flip(backwards, axis=-2)
