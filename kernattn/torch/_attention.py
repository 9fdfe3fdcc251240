"""The functions of attention on tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernattn import attention
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import shown
from kernattn.attention import LinearState
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError
from kernattn.features import FeatureMap
from kernattn.torch._functions import FORWARDS


def taken(backend: str | None, **given: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors, in the dtype of autocast where that is on."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise DTypeError(f"{name} must be a tensor; got {shown(x)}")
    if backend != "reference" and forward_ad._current_level >= 0:
        raise NotImplementedError(FORWARDS)
    tensors = tuple(given.values())
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Tensor:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` of tensors, with compiled gradients.

    Shapes, parameters and errors are those of :func:`kernattn.linear_attention`.

    Raises
    ------
    DTypeError
        If an argument is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 2), torch.ones(4, 2), torch.arange(4.0)[:, None].requires_grad_()
    >>> kt.linear_attention(q, k, v, ka.features.elu1()).sum().backward()
    >>> v.grad.T
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    q, k, v = taken(backend, q=q, k=k, v=v)
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
    r"""Return :math:`o_i = \phi(q_i)^T S_i / \phi(q_i)^T z_i` of tensors and the last state, with compiled gradients.

    Shapes, parameters and errors are those of :func:`kernattn.causal_linear_attention`.

    Raises
    ------
    DTypeError
        If an argument is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(4, 2), torch.ones(4, 2), torch.arange(4.0)[:, None]
    >>> out, state = kt.causal_linear_attention(q, k, v, ka.features.elu1())
    >>> out.T
    tensor([[0.0000, 0.5000, 1.0000, 1.5000]])
    """
    q, k, v = taken(backend, q=q, k=k, v=v)
    return attention.causal_linear_attention(
        q, k, v, phi, state=state, key_mask=key_mask, segment_ids=segment_ids, backend=backend
    )


def key_state(
    k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> LinearState:
    r"""Return the state of keys and values that are tensors, :math:`S = \sum_j \phi(k_j) v_j^T`.

    Shapes, parameters and errors are those of :func:`kernattn.key_state`.

    Raises
    ------
    DTypeError
        If an argument is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> kt.key_state(torch.zeros(3, 2), torch.ones(3, 1), ka.features.elu1()).z
    tensor([3., 3.])
    """
    k, v = taken(backend, k=k, v=v)
    return attention.key_state(k, v, phi, key_mask=key_mask, backend=backend)


def attend(state: LinearState, q: Tensor, phi: FeatureMap, *, backend: str | None = None) -> Tensor:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` of tensors by a state, with compiled gradients.

    Shapes, parameters and errors are those of :func:`kernattn.attend`.

    Raises
    ------
    DTypeError
        If q is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> state = kt.key_state(torch.ones(4, 2), torch.arange(4.0)[:, None], ka.features.elu1())
    >>> kt.attend(state, torch.zeros(3, 2), ka.features.elu1()).T
    tensor([[1.5000, 1.5000, 1.5000]])
    """
    (q,) = taken(backend, q=q)
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
    r"""Take one token: :math:`S \leftarrow S + \phi(k) v^T`, :math:`z \leftarrow z + \phi(k)`.

    Shapes, parameters and errors are those of :func:`kernattn.linear_attention_step`.

    Raises
    ------
    DTypeError
        If an argument is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> phi, x = ka.features.elu1(), torch.zeros(2)
    >>> state = ka.initial_state(phi, (), value_dim=1, like=x)
    >>> out, state = kt.linear_attention_step(state, x, x, torch.tensor([2.0]), phi)
    >>> out
    tensor([2.])
    """
    q, k, v = taken(backend, q=q, k=k, v=v)
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
    pattern: Pattern | Plan | None = None,
    backend: str | None = None,
) -> Tensor:
    r"""Return exact attention of tensors, :math:`\mathrm{softmax}(s q k^T) v`, with gradients.

    Shapes, parameters and errors are those of :func:`kernattn.softmax_attention`.

    Raises
    ------
    DTypeError
        If an argument is no tensor.
    NotImplementedError
        In forward mode, and later where a gradient is differentiated again; with ``backend="reference"`` neither is.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 2), torch.ones(4, 2), torch.arange(4.0)[:, None]
    >>> kt.softmax_attention(q, k, v)
    tensor([[1.5000]])
    """
    q, k, v = taken(backend, q=q, k=k, v=v)
    if key_bias is not None:
        (key_bias,) = taken(backend, key_bias=key_bias)
    options: dict[str, Any] = {"key_mask": key_mask, "key_bias": key_bias, "pattern": pattern, "backend": backend}
    return attention.softmax_attention(q, k, v, scale=scale, causal=causal, **options)


def softmax_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pattern: Pattern | Plan | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return exact attention of tensors, and its log normalisers :math:`\log \sum_j e^{s q_i^T k_j + b_j}`.

    Both have gradients. Shapes, parameters and errors are those of :func:`kernattn.attention.softmax_with_lse`, and
    what :func:`softmax_attention` raises.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 2), torch.ones(4, 2), torch.arange(4.0)[:, None]
    >>> out, lse = kt.softmax_with_lse(q, k, v)
    >>> lse
    tensor([1.3863])
    """
    q, k, v = taken(backend, q=q, k=k, v=v)
    if key_bias is not None:
        (key_bias,) = taken(backend, key_bias=key_bias)
    options: dict[str, Any] = {"key_mask": key_mask, "key_bias": key_bias, "pattern": pattern, "backend": backend}
    return attention.softmax_with_lse(q, k, v, scale=scale, causal=causal, **options)


def features(x: Tensor, phi: FeatureMap, *, keys: bool = False, backend: str | None = None) -> Tensor:
    r"""Return the features :math:`\phi(x)` of a tensor, with gradients.

    Parameters
    ----------
    x : (..., n, d) Tensor
        Queries, or keys.
    phi : FeatureMap
        The map.
    keys : bool
        Whether rows are keys, where a map has features of their own for these.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these tensors.

    Returns
    -------
    (..., n, M) Tensor
        Features, in the dtype of x.

    Raises
    ------
    DTypeError, ShapeError
        If x is no tensor, or not of the map's dimension.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> kt.features(torch.tensor([[1.0, 2.0]]), ka.features.elu1())
    tensor([[2., 3.]])
    """
    (x,) = taken(backend, x=x)
    found: Tensor = phi.key(x, backend=backend) if keys else phi.query(x, backend=backend)
    return found
