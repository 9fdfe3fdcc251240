"""Exact attention in array-API where sizes are symbols of a graph: all keys in one block, and no size is compared."""

from types import ModuleType

from kernattn._arrays.namespaces import Array, placement
from kernattn._sums.peaked import Normaliser, PeakedSum, finite, log_normaliser, quotient


def are_symbols(*sizes: object) -> bool:
    """Say whether one of these sizes is a symbol, so that an operation for all numbers is wanted."""
    return any(type(size) is not int for size in sizes)


def answer_whole(
    xp: ModuleType, q: Array, k: Array, v: Array, scale: float, causal: bool, mask: Array | None,
    bias: Array | None, pairs: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return outputs and log normalisers. Queries are the last n of the l places where attention is causal."""
    n, length, where = q.shape[-2], k.shape[-2], placement(q)
    scores = xp.matmul(q * scale, xp.matrix_transpose(k))  # (..., n, l)
    seen = xp.ones_like(scores, dtype=xp.bool)
    if mask is not None:
        seen = seen & mask[..., None, :]
    if bias is not None:
        scores = scores + bias[..., None, :]
    if causal:
        places = xp.arange(length, **where)
        seen = seen & (places <= (xp.arange(n, **where) + (length - n))[:, None])
    if pairs is not None:
        scores = scores + xp.where(pairs == -xp.inf, xp.zeros_like(pairs), pairs)
        seen = seen & (pairs != -xp.inf)
    scores = xp.where(seen, scores, -xp.inf)
    peak = xp.max(scores, axis=-1, keepdims=True)
    weights = xp.exp(scores - finite(xp, peak))
    known = xp.where(xp.isfinite(v), v, xp.zeros_like(v))
    s = xp.matmul(weights, known) + _rough(xp, seen, v)
    total = PeakedSum(s, xp.sum(weights, axis=-1), peak[..., 0])
    return quotient(xp, total, v.dtype), log_normaliser(xp, Normaliser(total.peak, total.z)).log


def _rough(xp: ModuleType, seen: Array, v: Array) -> Array:
    """Return the sum of the values that rows see and that are not finite, (..., n, e): 0 of none."""
    rows, zero = xp.astype(seen, v.dtype), xp.zeros_like(v)
    kinds = ((v == xp.inf, xp.inf), (v == -xp.inf, -xp.inf), (xp.isnan(v), xp.nan))
    found = [(xp.matmul(rows, xp.where(kind, 1.0, zero)), value) for kind, value in kinds]
    return sum(xp.where(count > 0, value, xp.zeros_like(count)) for count, value in found)
