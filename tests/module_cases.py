"""Modules of kernattn.torch, heads for them, and attention as written."""

import pytest
import torch

import kernattn as ka
from kernattn.torch import FavorAttention, LinearAttention

B, H, N, D, E = 2, 4, 11, 8, 5


def heads(kv_heads=H, n=N, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, n, D), (B, kv_heads, n, D), (B, kv_heads, n, E)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def favor(**changes):
    settings = {"kernel": ka.kernels.Softmax(), "dim": D, "num_features": 16, "causal": True}
    return FavorAttention(**settings | changes).double()


def made(kind, **changes):
    return favor(**changes) if kind == "favor" else LinearAttention(**{"causal": True} | changes)


KINDS = pytest.mark.parametrize("kind", ["linear", "favor"])


def oracle(module, q, k, v, mask=None):
    """Attention as written, with the module's own features."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    weights = module.phi(q, backend="reference") @ module.phi(k, backend="reference").mT
    if module.causal:
        weights = weights.tril()
    if mask is not None:
        weights = weights * mask[:, None, None]
    z = weights.sum(-1, keepdim=True)
    return torch.where(z == 0, 0, weights @ v / torch.where(z == 0, 1, z))
