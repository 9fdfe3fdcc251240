"""The mechanisms of efficient attention on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernattn import attention
from kernattn._plans.plan import Plan
from kernattn.attention.patterns import Pattern
from kernattn.features import FeatureMap
from kernattn.kernels import Kernel
from kernattn.torch._attention import taken


def kernel_attention(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, **options: Any) -> Tensor:
    """Return :func:`kernattn.kernel_attention` of tensors, with gradients; graphs of `torch.compile` break here.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 2), torch.zeros(4, 2), torch.arange(4.0)[:, None]
    >>> kt.kernel_attention(q, k, v, ka.kernels.Gaussian())
    tensor([[1.5000]])
    """
    q, k, v = taken(None, q=q, k=k, v=v)
    return attention.kernel_attention(q, k, v, kernel, **options)


def lsh_attention(x: Tensor, v: Tensor, *, rotations: Any, chunk: int, **options: Any) -> Tensor:
    """Return :func:`kernattn.attention.lsh_attention` of tensors, with gradients; graphs break here.

    Which tokens meet is a constant of the gradients.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> x, v = torch.tensor([[1.0, 0.0], [1.0, 0.1]]), torch.tensor([[0.0], [1.0]])
    >>> kt.lsh_attention(x, v, rotations=torch.eye(2)[None, :, :1], chunk=2)
    tensor([[1.],
            [0.]])
    """
    x, v = taken(options.get("backend"), x=x, v=v)
    return attention.lsh_attention(x, v, rotations=rotations, chunk=chunk, **options)


def routing_attention(q: Tensor, k: Tensor, v: Tensor, centroids: Any, *, window: int, **options: Any) -> Tensor:
    """Return :func:`kernattn.attention.routing_attention` of tensors, with gradients; graphs break here.

    Which tokens meet is a constant of the gradients.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.ones(1, 2, 2), torch.ones(1, 2, 2), torch.tensor([[[0.0], [1.0]]])
    >>> kt.routing_attention(q, k, v, torch.ones(1, 1, 2), window=2)
    tensor([[[0.5000],
             [0.5000]]])
    """
    q, k, v = taken(options.get("backend"), q=q, k=k, v=v)
    return attention.routing_attention(q, k, v, centroids, window=window, **options)


def compressed_attention(
    q: Tensor, k: Tensor, v: Tensor, *, factor: int, weights_k: Tensor, weights_v: Tensor, **options: Any
) -> Tensor:
    """Return :func:`kernattn.attention.compressed_attention` of tensors, with gradients, of the weights as well.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 1), torch.zeros(4, 1), torch.arange(4.0)[:, None]
    >>> mean = torch.full((2, 1, 1), 0.5)
    >>> kt.compressed_attention(q, k, v, factor=2, weights_k=mean, weights_v=mean)
    tensor([[1.5000]])
    """
    q, k, v = taken(options.get("backend"), q=q, k=k, v=v)
    return attention.compressed_attention(q, k, v, factor=factor, weights_k=weights_k, weights_v=weights_v, **options)


def linformer_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, **options: Any) -> Tensor:
    """Return :func:`kernattn.attention.linformer_attention` of tensors, with gradients, of the mixtures as well.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 1), torch.zeros(4, 1), torch.arange(4.0)[:, None]
    >>> kt.linformer_attention(q, k, v, torch.eye(4), torch.eye(4))
    tensor([[1.5000]])
    """
    q, k, v, e, f = taken(options.get("backend"), q=q, k=k, v=v, e=e, f=f)
    return attention.linformer_attention(q, k, v, e, f, **options)


def nystrom_attention(q: Tensor, k: Tensor, v: Tensor, *, landmarks: int, **options: Any) -> Tensor:
    """Return :func:`kernattn.attention.nystrom_attention` of tensors, with gradients.

    Examples
    --------
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(1, 1), torch.zeros(4, 1), torch.arange(4.0)[:, None]
    >>> kt.nystrom_attention(q, k, v, landmarks=1)
    tensor([[1.5000]])
    """
    q, k, v = taken(options.get("backend"), q=q, k=k, v=v)
    return attention.nystrom_attention(q, k, v, landmarks=landmarks, **options)


def scatterbrain_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, pattern: Pattern | Plan, **options: Any
) -> Tensor:
    """Return :func:`kernattn.attention.scatterbrain_attention` of tensors, with gradients.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> q, k, v = torch.zeros(2, 1), torch.zeros(2, 1), torch.arange(2.0)[:, None]
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=1, num_features=2, rng=0)
    >>> kt.scatterbrain_attention(q, k, v, phi, ka.patterns.local(1))
    tensor([[0.5000],
            [0.5000]])
    """
    q, k, v = taken(options.get("backend"), q=q, k=k, v=v)
    return attention.scatterbrain_attention(q, k, v, phi, pattern, **options)
