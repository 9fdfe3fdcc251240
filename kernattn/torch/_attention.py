"""The functions of attention on tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernattn import attention
from kernattn._check import shown
from kernattn.attention import LinearState
from kernattn.errors import DTypeError
from kernattn.features import FeatureMap

__all__ = [
    "attend",
    "causal_linear_attention",
    "features",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "softmax_attention",
]


def _taken(**given: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors, in the dtype of autocast where that is on."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise DTypeError(f"{name} must be a tensor; got {shown(x)}")
    tensors = tuple(given.values())
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Tensor:
    r"""Return :func:`kernattn.linear_attention` of tensors, :math:`\phi(q) S / \phi(q) z`."""
    q, k, v = _taken(q=q, k=k, v=v)
    out: Tensor = attention.linear_attention(q, k, v, phi, key_mask=key_mask, backend=backend)
    return out


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    backend: str | None = None,
) -> tuple[Tensor, LinearState]:
    r"""Return :func:`kernattn.causal_linear_attention` of tensors, :math:`\phi(q_i) S_i / \phi(q_i) z_i`."""
    q, k, v = _taken(q=q, k=k, v=v)
    return attention.causal_linear_attention(
        q, k, v, phi, state=state, key_mask=key_mask, segment_ids=segment_ids, backend=backend
    )


def key_state(
    k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> LinearState:
    r"""Return :func:`kernattn.key_state` of tensors, :math:`S = \sum_j \phi(k_j) v_j^T`."""
    k, v = _taken(k=k, v=v)
    return attention.key_state(k, v, phi, key_mask=key_mask, backend=backend)


def attend(state: LinearState, q: Tensor, phi: FeatureMap, *, backend: str | None = None) -> Tensor:
    r"""Return :func:`kernattn.attend` of tensors, :math:`\phi(q) S / \phi(q) z`."""
    (q,) = _taken(q=q)
    out: Tensor = attention.attend(state, q, phi, backend=backend)
    return out


def linear_attention_step(
    state: LinearState,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    key_mask: Tensor | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, LinearState]:
    r"""Take one token, :func:`kernattn.linear_attention_step` of tensors: :math:`S \leftarrow S + \phi(k) v^T`."""
    q, k, v = _taken(q=q, k=k, v=v)
    return attention.linear_attention_step(
        state, q, k, v, phi, key_mask=key_mask, backend=backend, reuse_state=reuse_state, out=out
    )


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pattern: Any = None,
    backend: str | None = None,
) -> Tensor:
    r"""Return :func:`kernattn.softmax_attention` of tensors, :math:`\mathrm{softmax}(s q k^T) v`."""
    q, k, v = _taken(q=q, k=k, v=v)
    options = {"key_mask": key_mask, "key_bias": key_bias, "pattern": pattern, "backend": backend}
    return attention.softmax_attention(q, k, v, scale=scale, causal=causal, **options)


def features(phi: FeatureMap, x: Tensor, *, key: bool = False, backend: str | None = None) -> Tensor:
    r"""Return the features :math:`\phi(x)` of a tensor, (..., n, d) -> (..., n, M); with `key`, those of keys."""
    (x,) = _taken(x=x)
    found: Tensor = phi.key(x, backend=backend) if key else phi.query(x, backend=backend)
    return found
