"""Queries, keys and values as tensors, for tests of PyTorch."""

import pytest

from maps import DIM

torch = pytest.importorskip("torch")


def inputs(*lead, n=5, e=3, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(1)
    shapes = (*lead, n, DIM), (*lead, n, DIM), (*lead, n, e)
    return [(0.7 * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_(grad) for shape in shapes]
