r"""Cotangents of exact attention in array-API, a block of queries after the other (Dao et al. 2022).

P = exp(s q.k - lse) and dS = P (g.v - g.o); dq = s dS k, dk = s dS^T q, dv = P^T g, ds = sum_i q_i.(dS k)_i.
"""

from types import ModuleType

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, constant, namespace, placement, zero_masked
from kernattn._plans.parts import seen_of
from kernattn._plans.plan import Plan
from kernattn._sums.cotangents import sum_onto
from kernattn._sums.peaked import finite
from kernattn.ops.block_softmax.far_reference import far_rows, far_weights, hide_unseen
from kernattn.ops.block_softmax.parts_reference import blind_product
from kernattn.ops.block_softmax.reference import cut_product, shown_bias

BLOCK = 256
PRECISE = 2.0**-10  # the relative error of a weight, from the rounding of its log normaliser


def block_softmax_vjp(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    plan: Plan,
    key_mask: Array | None,
    key_bias: Array | None,
    score_bias: Array | None,
    out: Array,
    lse: Array,
    g: Array,
    g_lse: Array | None,
) -> tuple[Array, Array, Array, Array, Array | None, Array | None]:
    """Return the cotangents of q, k, v, the scale and the biases."""
    xp = namespace(q=q)
    dtype, kinds = accumulation_dtype(xp, q), (q.dtype, k.dtype, v.dtype)
    q, k, v, out, g = (xp.astype(x, dtype, copy=False) for x in (q, k, v, out, g))
    of_lse = None if g_lse is None else xp.astype(g_lse, dtype)[..., None]
    alive = xp.any(g != 0, axis=-1, keepdims=True)
    alive = (alive if of_lse is None else alive | (of_lse != 0)) & (lse != -xp.inf)[..., None]
    out, g = (xp.where(alive, x, xp.zeros_like(x)) for x in (out, g))
    q = xp.where(sum_onto(xp, xp.astype(alive, dtype), (*q.shape[:-1], 1)) > 0, q, xp.zeros_like(q))
    shapes, bias = [tuple(x.shape) for x in (q, k, v)], None
    if key_bias is not None:
        key_mask, bias = shown_bias(xp, key_mask, xp.astype(key_bias, dtype, copy=False))
    pairs = None if score_bias is None else xp.astype(score_bias, dtype, copy=False)
    k, v = zero_masked(k, key_mask), zero_masked(v, key_mask)
    n, length = q.shape[-2], k.shape[-2]
    before = length - n if plan.kind == "causal" else None
    judged = plan.kind != "parts" and bias is pairs is None
    far = _far(xp, q, k, scale, before, lse, alive[..., 0]) if judged else None
    near = q * scale if far is None else xp.where(far[..., None], xp.zeros_like(q), q * scale)
    dots = xp.sum(g * out, axis=-1, keepdims=True)
    dots = dots if of_lse is None else dots - of_lse
    told_rows, told_pairs, dk, dv, db = [], [], 0.0, 0.0, 0.0
    for low in range(0, n, BLOCK):
        rows = (..., slice(low, min(low + BLOCK, n)), slice(None))
        position = None if before is None or pairs is not None else before + low
        scores = xp.matmul(near[rows], xp.matrix_transpose(k))  # (..., b, l)
        scores = hide_unseen(xp, scores if bias is None else scores + bias[..., None, :], 0, position, key_mask)
        sees = _mask_of_block(xp, plan, low, q) if plan.kind == "parts" else None
        if pairs is not None:
            added, sees = _pairs_of_block(xp, pairs[rows], sees, before, low)
            scores = scores + added
        if sees is not None:
            scores = xp.where(sees, scores, -xp.inf)
        seen, dot = (scores != -xp.inf) & alive[rows], dots[rows]
        logs = scores - finite(xp, lse[..., None])[rows]
        weights = xp.where(seen, xp.exp(xp.minimum(logs, xp.zeros_like(logs))), xp.zeros_like(logs))
        of_weights = xp.matmul(g[rows], xp.matrix_transpose(v))
        if far is not None:
            there = far[..., None][rows]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                shares, _ = far_weights(xp, q[rows], k, scale, position, key_mask)
            weights, seen = xp.where(there, shares, weights), seen | (shares > 0)
            exact = xp.sum(weights * of_weights, axis=-1, keepdims=True)
            dot = xp.where(there, exact if of_lse is None else exact - of_lse[rows], dot)
        slopes = xp.where(seen, weights * (of_weights - dot), xp.zeros_like(weights))
        told_rows.append(_read(xp, slopes, k, position, sees))
        dk = dk + _weights_times(xp, slopes, q[rows] * scale, position, sees)
        dv = dv + _weights_times(xp, weights, g[rows], position, sees)
        db = db + xp.sum(slopes, axis=-2)
        if pairs is not None:
            told_pairs.append(sum_onto(xp, slopes, tuple(pairs[rows].shape)))
    dq = xp.concat(told_rows, axis=-2)
    of_scores = sum_onto(xp, xp.where(alive, dq, xp.zeros_like(dq)), shapes[0])
    cotangents = (scale * of_scores, dk, dv)
    dq, dk, dv = (
        xp.astype(sum_onto(xp, x, shape), kind, copy=False)
        for x, shape, kind in zip(cotangents, shapes, kinds, strict=True)
    )
    if key_bias is not None:
        db = xp.astype(sum_onto(xp, db, tuple(key_bias.shape)), key_bias.dtype, copy=False)
    of_pairs = None if score_bias is None else xp.astype(xp.concat(told_pairs, axis=-2), score_bias.dtype, copy=False)
    return dq, dk, dv, xp.sum(q * of_scores), None if key_bias is None else db, of_pairs


def _mask_of_block(xp: ModuleType, plan: Plan, low: int, like: Array) -> Array:
    """Return the mask (b, l) of a block of rows from `low` on by a plan of parts, for each head where they differ."""
    high = min(low + BLOCK, plan.n)
    seen = np.stack([seen_of(parts, low, high, plan.length) for parts in plan.heads])
    return constant(xp, seen if len(seen) > 1 else seen[0], xp.bool, like)


def _pairs_of_block(
    xp: ModuleType, pairs: Array, sees: Array | None, before: int | None, low: int
) -> tuple[Array, Array]:
    """Return what is added to the scores (..., b, l) of a block of rows from `low` on, and which keys these see."""
    shown = pairs != -xp.inf
    if sees is not None:
        shown = shown & sees
    elif before is not None:
        count, length = pairs.shape[-2:]
        rows = xp.arange(before + low, before + low + count, **placement(pairs))
        shown = shown & (xp.arange(length, **placement(pairs)) <= rows[:, None])
    return xp.where(shown, xp.where(pairs == xp.inf, xp.nan, pairs), xp.zeros_like(pairs)), shown


def _far(
    xp: ModuleType, q: Array, k: Array, scale: float, before: int | None, lse: Array, alive: Array
) -> Array | None:
    """Return which rows (..., n) may overflow, or feel the rounding of their normaliser; None where there are none."""
    far = xp.isfinite(lse) & (xp.abs(lse) >= PRECISE / float(xp.finfo(lse.dtype).eps))
    may_overflow = far_rows(xp, q, k, xp.zeros_like(k[..., :1]), scale, before)
    far = alive & (far if may_overflow is None else far | may_overflow)
    return far if anywhere(far) else None


def _read(xp: ModuleType, weights: Array, x: Array, position: int | None, sees: Array | None) -> Array:
    """Return weights x, where row i reads the rows of x that it sees: up to position + i, those of `sees`, or all."""
    if sees is not None:
        return blind_product(xp, weights, x, xp.astype(sees, x.dtype))
    return xp.matmul(weights, x) if position is None else cut_product(xp, weights, x, position)


def _weights_times(xp: ModuleType, weights: Array, x: Array, position: int | None, sees: Array | None) -> Array:
    """Return weights^T x, (..., l, c), of weights (..., n, l), where key j reads the rows that see it."""
    if position is None:
        turned = None if sees is None else xp.matrix_transpose(sees)
        return _read(xp, xp.matrix_transpose(weights), x, None, turned)
    n, length = weights.shape[-2:]
    turned = xp.flip(xp.matrix_transpose(weights), axis=(-2, -1))
    return xp.flip(cut_product(xp, turned, xp.flip(x, axis=-2), n - length + position), axis=-2)
