"""Weights of sketches: signs, and products of rows with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernattn._array import Array, constant, namespace

__all__ = ["products", "projected", "random_signs"]


def projected(x: Any, weights: NDArray[Any]) -> Array:
    """Return x W^T (..., n, D) of rows, dense or CSR, in their dtype."""
    if sparse.issparse(x):
        return x @ np.ascontiguousarray(weights.T, dtype=x.dtype)
    xp = namespace(x=x)
    return xp.matmul(x, constant(xp, weights.T, x.dtype, x))


def products(x: Any, omega: NDArray[Any]) -> Array:
    """Return M^(-1/2) times the products over i of x W_i^T (..., n, M), for weights W (p, M, d)."""
    phi = projected(x, omega[0]) * omega.shape[1] ** -0.5
    for weights in omega[1:]:
        phi = phi * projected(x, weights)
    return phi


def random_signs(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    """Return independent fair signs, not writeable."""
    signs = 2 * rng.integers(2, size=shape, dtype=np.int8) - 1
    signs.setflags(write=False)
    return signs
