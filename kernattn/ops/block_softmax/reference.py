"""Exact attention over blocks in array-API."""

from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, placement, widest, zero_masked
from kernattn._arrays.shapes import broadcast
from kernattn._plans.parts import dense
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import (
    Normaliser,
    PeakedSum,
    before_rounding,
    empty,
    finite,
    log_normaliser,
    merge,
    quotient,
)
from kernattn.ops.block_softmax.far_reference import answer_far_rows, far_rows, hide_unseen
from kernattn.ops.block_softmax.parts_reference import answer_heads
from kernattn.ops.block_softmax.whole_reference import answer_whole, are_symbols

BLOCK = 512


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None = None,
    score_bias: Array | None = None, keep: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    """Return the outputs and the log normalisers, and outputs before they were rounded if they are kept."""
    xp = namespace(q=q)
    out, lse = _answer_any(xp, q, k, v, scale, plan, key_mask, key_bias, score_bias)
    rounded = xp.astype(out, q.dtype, copy=False)
    return (rounded, lse, before_rounding(xp, out, q.dtype)) if keep else (rounded, lse)


def _answer_any(
    xp: ModuleType, q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None,
    key_bias: Array | None, score_bias: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    dtype = accumulation_dtype(xp, q)
    bias, pairs = None, None if score_bias is None else xp.astype(score_bias, dtype, copy=False)
    if key_bias is not None:
        key_mask, bias = shown_bias(xp, key_mask, xp.astype(key_bias, dtype, copy=False))
    k, v = zero_masked(k, key_mask), zero_masked(v, key_mask)
    q, k, v = (xp.astype(x, dtype, copy=False) for x in (q, k, v))
    if plan.kind != "parts" and are_symbols(q.shape[-2], k.shape[-2]):
        return answer_whole(xp, q, k, v, scale, plan.kind == "causal", key_mask, bias, pairs)
    if plan.kind == "parts" or not (bias is pairs is None):
        heads = plan.heads or ((dense(q.shape[-2], k.shape[-2], plan.kind == "causal"),),)
        wide = widest(xp, q)
        known = [xp.where(xp.isfinite(x), x, xp.zeros_like(x)) for x in (q, k, v)]
        if wide == dtype or far_rows(xp, known[0], known[1], known[2], scale, None) is None:
            return answer_heads(xp, q, k, v, scale, heads, key_mask, bias, pairs)
        return _answer_twice(xp, (q, k, v), scale, heads, key_mask, bias, pairs)
    before = k.shape[-2] - q.shape[-2] if plan.kind == "causal" else None
    far = far_rows(xp, q, k, v, scale, before)
    if far is None:
        return _answer(xp, q, k, v, scale, before, key_mask)
    near = xp.where(far[..., None], xp.zeros_like(q), q)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rows, logs = answer_far_rows(xp, q, k, v, scale, before, key_mask)
        out, lse = _answer(xp, near, k, v, scale, before, key_mask)
    return xp.where(far[..., None], rows, out), xp.where(far, logs, lse)


def shown_bias(xp: ModuleType, mask: Array | None, bias: Array) -> tuple[Array, Array]:
    """Return the mask with the keys hidden that have a bias of -inf, and the bias: 0 where hidden, NaN for infinity."""
    shown = bias != -xp.inf
    shown = shown if mask is None else shown & mask
    return shown, xp.where(shown, xp.where(bias == xp.inf, xp.nan, bias), xp.zeros_like(bias))


def _answer_twice(
    xp: ModuleType, arrays: tuple[Array, Array, Array], scale: float, heads: Any, mask: Array | None,
    bias: Array | None, pairs: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return outputs and log normalisers over parts, in float64 those of rows that leave float32 by what they see."""
    dtype, wide = arrays[0].dtype, widest(xp, arrays[0])
    limit = float(xp.finfo(dtype).max)
    with np.errstate(over="ignore", invalid="ignore"):
        out, lse = answer_heads(xp, *arrays, scale, heads, mask, bias, pairs)
    q, k, v = (xp.astype(x, wide) for x in arrays)
    bias, pairs = (None if x is None else xp.astype(x, wide) for x in (bias, pairs))
    rows, logs = answer_heads(xp, q, k, v, scale, heads, mask, bias, pairs)
    logs = xp.where(xp.isfinite(logs), xp.clip(logs, min=-limit, max=limit), logs)
    lost = ~xp.isfinite(lse) | ~xp.all(xp.isfinite(out), axis=-1)
    return xp.where(lost[..., None], xp.astype(rows, dtype), out), xp.where(lost, xp.astype(logs, dtype), lse)


def _answer(
    xp: ModuleType, q: Array, k: Array, v: Array, scale: float, before: int | None, mask: Array | None
) -> tuple[Array, Array]:
    """Return outputs and log normalisers, blocks of queries one after the other."""
    q, n = q * scale, q.shape[-2]
    totals = [
        _rows(xp, q[..., low : min(low + BLOCK, n), :], k, v, None if before is None else low + before, mask)
        for low in range(0, n, BLOCK)
    ]
    out = xp.concat([quotient(xp, total, v.dtype) for total in totals], axis=-2)
    lse = xp.concat([log_normaliser(xp, Normaliser(total.peak, total.z)).log for total in totals], axis=-1)
    return out, lse


def _rows(xp: ModuleType, q: Array, k: Array, v: Array, position: int | None, mask: Array | None) -> PeakedSum:
    """Return the sums of a block of queries, the first of which stands at `position` of the keys."""
    n, stop = q.shape[-2], k.shape[-2]
    if position is not None:
        stop = max(0, min(stop, position + n))
    lead = broadcast(q=tuple(q.shape[:-2]), k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]))
    total = empty(xp, lead, n, n, v.shape[-1], q.dtype, q)
    for low in range(0, stop, BLOCK):
        high = min(low + BLOCK, stop)
        scores = xp.matmul(q, xp.matrix_transpose(k[..., low:high, :]))  # (..., n, b)
        scores = hide_unseen(xp, scores, low, position, mask)
        last = position - low if position is not None and high - 1 > position else None  # that row 0 sees of the block
        values = v[..., low:high, :]
        peak = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - finite(xp, peak))
        s = xp.matmul(weights, values) if last is None else cut_product(xp, weights, values, last)
        part = PeakedSum(s, xp.sum(weights, axis=-1), peak[..., 0])
        total = merge(xp, total, part)
    return total


def cut_product(xp: ModuleType, weights: Array, values: Array, last: int) -> Array:
    """Return weights values, where row i sees the first last + i + 1 values: the others may be NaN or infinite."""
    there, zero = xp.isfinite(values), xp.zeros_like(values)
    rough = xp.cumulative_sum(xp.where(there, zero, values), axis=-2)  # (..., b, e): what is not finite, up to each key
    upto = xp.arange(last, last + weights.shape[-2], **placement(values))  # (n,)
    seen = xp.take(rough, xp.clip(upto, 0, values.shape[-2] - 1), axis=-2)
    return xp.matmul(weights, xp.where(there, values, zero)) + xp.where((upto >= 0)[:, None], seen, 0.0)
