"""Attention to compressed keys where `torch.compile` traces it: one graph for all numbers of tokens."""

from operator import index
from typing import Any

import torch
from torch import Tensor

from kernattn._runtime.checks import boolean
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.torch._in_graphs import OPS, autocast, product, sums_dtype
from kernattn.torch._plans import BLOCKS


def compress_and_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    factor: Any,
    weights_k: Tensor,
    weights_v: Tensor,
    causal: Any = False,
    key_mask: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Return attention to blocks of keys. No size decides about an operation, for each such decision makes a graph.

    A causal plan of blocks is named by the factor alone, so queries become as many as end with the last block: the last
    one is repeated, whose last copy sees all blocks, as it does where the last block is short.
    """
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise ParameterError("factor must be a positive integer")
    factor = index(factor)  # a constant of the graph: in names and shapes
    q, k, v, weights_k, weights_v = autocast(q, k, v, weights_k, weights_v)
    n, length, wide = q.shape[-2], k.shape[-2], sums_dtype(q)
    blocks = (length + factor - 1) // factor
    missing = blocks * factor - length
    if key_mask is not None:
        k, v = (torch.where(key_mask[..., None], x, 0.0) for x in (k, v))
    keys, values = (_blocks(x, w, q, blocks) for x, w in ((k, weights_k), (v, weights_v)))
    there = None if key_mask is None else _side_by_side(key_mask[..., None], factor, blocks).any(-1)
    rows, plan = q.to(wide), "all"
    if boolean("causal", causal):
        if n > length:
            raise ShapeError("causal queries are the last n of the l tokens; got more queries")
        rows, plan = _rows(rows, n + missing), f"{BLOCKS}{factor}"
    out = OPS.block_softmax(rows, keys, values, there, None, None, q.shape[-1] ** -0.5, plan, backend)[0]
    if plan != "all":
        at = torch.arange(n, device=q.device)
        out = out.index_select(-2, torch.where(at == n - 1, n + missing - 1, at))
    return out.to(q.dtype)


def _blocks(x: Tensor, weights: Tensor, q: Tensor, count: Any) -> Tensor:
    """Return so many blocks (..., m, c) of x (..., l, c), zeros in place of what is missing."""
    factor, size, _ = weights.shape
    if tuple(weights.shape) != (factor, x.shape[-1], x.shape[-1]):
        raise ShapeError("weights must be of shape (factor, size, size), the sizes those of keys or values")
    if weights.dtype != q.dtype or x.dtype != q.dtype:
        raise DTypeError("k, v and weights must have the dtype of q")
    wide = sums_dtype(q)
    return product(_side_by_side(x.to(wide), factor, count), weights.to(wide).reshape(factor * size, size))


def _side_by_side(x: Tensor, factor: int, count: Any) -> Tensor:
    """Return the rows of each block side by side (..., m, factor c), zeros in place of what is missing."""
    there = torch.arange(count * factor, device=x.device) < x.shape[-2]
    whole = torch.where(there[:, None], _rows(x, count * factor), x.new_zeros(()))
    return whole.reshape(*x.shape[:-2], count, factor * x.shape[-1])


def _rows(x: Tensor, count: Any) -> Tensor:
    """Return so many rows, the last one again and again."""
    return x.index_select(-2, torch.arange(count, device=x.device).clamp(max=x.shape[-2] - 1))
