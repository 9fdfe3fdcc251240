"""Rows of 16 bits beside numbers of float32, widened some at a time: no array of rows is widened whole."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._plans.plan import ALL, CAUSAL, Plan
from kernattn.attention._softmax import softmax_attention
from kernattn.ops.block_softmax import OP

TOKENS = 512
"""Rows that are widened at a time."""


def widened_once(*rows: Array) -> tuple[Array, ...]:
    """Return rows that gradients may flow to in the dtype of sums: what is read twice has its cotangents added there.

    So these are rounded once. Of NumPy's arrays, through which none flow here, 16 bits stay.
    """
    return tuple(
        x if isinstance(x, np.ndarray) else namespace(x=x).astype(x, accumulation_dtype(namespace(x=x), x), copy=False)
        for x in rows
    )


def mix(xp: ModuleType, weights: Array, x: Array) -> Array:
    """Return weights (..., r, l) times rows x (..., l, c), in the dtype of sums."""
    wide = accumulation_dtype(xp, x)
    if not is_narrow(x):
        return xp.matmul(xp.astype(weights, wide, copy=False), xp.astype(x, wide, copy=False))
    total: Any = 0
    for low in range(0, x.shape[-2], TOKENS):
        some = slice(low, low + TOKENS)
        total = total + xp.matmul(xp.astype(weights[..., some], wide), xp.astype(x[..., some, :], wide))
    return total


def transform(xp: ModuleType, x: Array, weights: Array) -> Array:
    """Return rows x (..., l, c) times weights (c, r), in the dtype of sums."""
    wide = accumulation_dtype(xp, x)
    weights = xp.astype(weights, wide, copy=False)
    if not is_narrow(x):
        return xp.matmul(xp.astype(x, wide, copy=False), weights)
    out = np.empty((*x.shape[:-1], weights.shape[-1]), wide)
    for low in range(0, x.shape[-2], TOKENS):
        some = slice(low, low + TOKENS)
        np.matmul(x[..., some, :].astype(wide), weights, out=out[..., some, :])
    return out


def attend_to(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    key_mask: Array | None = None,
    key_bias: Array | None = None,
    plan: Plan = ALL,
    backend: str | None = None,
) -> Array:
    """Return exact attention of queries, keys and values, some of which may have 16 bits.

    In the dtype of queries, or in that of sums. The loops and the reference take rows of NumPy as they are.
    """
    if isinstance(q, np.ndarray):
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        out, _ = OP.implementation(q, backend)(q, k, v, factor, plan, key_mask, key_bias, None)
        return out
    xp = namespace(q=q)
    q, k, v = (xp.astype(x, accumulation_dtype(xp, x), copy=False) for x in (q, k, v))
    pattern = plan if plan.kind == "parts" else None
    return softmax_attention(
        q, k, v, scale=scale, causal=plan is CAUSAL, key_mask=key_mask, key_bias=key_bias, pattern=pattern,
        backend=backend,
    )  # fmt: skip


def is_narrow(x: Array) -> bool:
    """Has an array of NumPy 16 bits a number?"""
    return isinstance(x, np.ndarray) and x.dtype.itemsize == 2
