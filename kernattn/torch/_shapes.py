"""The shapes and dtypes that come out of `torch.ops.kernattn`, where there are no numbers yet."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from kernattn._plans.plan import check_heads
from kernattn.torch._plans import plan_of
from kernattn.torch._specs import resolved

Tensors: TypeAlias = tuple[Tensor, ...]


def features(x: Tensor, *tail: Any) -> Tensor:
    return x.new_empty((*x.shape[:-1], _sizes(tail[-2], x)[0]))


def key_state(k: Tensor, v: Tensor, key_mask: Any, *tail: Any) -> Tensors:
    return _state(k, v, tail[-2])


def attend(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, *tail: Any) -> Tensors:
    return _out(q, s, s.shape[:-2], 2)


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensors:
    lead = torch.broadcast_shapes(k.shape[:-2], v.shape[:-2])
    return *_out(q, v, lead, 2), *_state(k, v, rest[-2])


causal = linear_attention


def step(s: Tensor, z: Tensor, peak: Tensor, *rest: Any) -> Tensors:
    return step_(s, z, peak, *rest), *cotangents(s, z, peak)


def step_(s: Tensor, z: Tensor, peak: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return _out(q, v, torch.broadcast_shapes(k.shape[:-1], v.shape[:-1]), 1)[0]


def block_softmax(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensors:
    check_heads(plan_of(rest[-2]), torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]))
    return _out(q, v, torch.broadcast_shapes(k.shape[:-2], v.shape[:-2]), 2)[:2]


def cotangents(*inputs: Tensor | None) -> list[Tensor]:
    """Return what a pullback does, from the floating inputs of its op."""
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs if x is not None]


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _sizes(spec: str, x: Tensor) -> tuple[int, int]:
    """Return how many features a row has, and how many log scales."""
    found = resolved(spec)
    m = found.num_features_of(int(x.shape[-1]))
    return m, m if found.per_feature else 1


def _state(k: Tensor, v: Tensor, spec: str) -> Tensors:
    lead, (m, peaks) = torch.broadcast_shapes(k.shape[:-2], v.shape[:-2]), _sizes(spec, k)
    shapes = (*lead, m, v.shape[-1]), (*lead, m), (*lead, peaks)
    return tuple(v.new_empty(shape, dtype=_wide(v)) for shape in shapes)


def _out(q: Tensor, v: Tensor, lead: Any, axes: int) -> Tensors:
    """Return outputs of the dtype of q, and the two parts of their normaliser."""
    cut = q.ndim - axes
    rows = (*torch.broadcast_shapes(q.shape[:cut], lead), *q.shape[cut:-1])
    row_peak, row_z = (q.new_empty(rows, dtype=_wide(q)) for _ in range(2))
    return q.new_empty((*rows, v.shape[-1])), row_peak, row_z
