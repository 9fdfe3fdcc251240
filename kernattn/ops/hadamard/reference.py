"""Chains of Hadamard transforms in array-API: H of p = ab is one of a by one of b, each a small matrix product."""

from types import ModuleType

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace, zeros
from kernattn._maps.chains import Chains
from kernattn._maps.walsh import walsh_hadamard


def hadamard(x: Array, chains: Chains) -> Array:
    """Return the projections, (..., n, D), in the dtype of x."""
    xp = namespace(x=x)
    dtype, out_dtype = accumulation_dtype(xp, x), x.dtype
    x = xp.astype(x, dtype, copy=False)
    p = chains.diagonals.shape[-1]
    u = x
    if p > x.shape[-1]:
        u = xp.concat([x, zeros(xp, (*x.shape[:-1], p - x.shape[-1]), dtype, x)], axis=-1)
    u = u[..., None, :]  # (..., n, blocks, p)
    for link in range(chains.diagonals.shape[1]):
        u = _transform(xp, u * constant(xp, chains.diagonals[:, link], dtype, x))
    u = xp.reshape(u, (*u.shape[:-2], -1))[..., : len(chains)] * constant(xp, chains.norms, dtype, x)
    return xp.astype(u, out_dtype, copy=False)


def _transform(xp: ModuleType, x: Array) -> Array:
    """Return H x along the last axis."""
    p = x.shape[-1]
    a = 1 << (p.bit_length() - 1) // 2
    left, right = (constant(xp, walsh_hadamard(np.eye(size)), x.dtype, x) for size in (a, p // a))
    u = xp.matmul(left, xp.matmul(xp.reshape(x, (*x.shape[:-1], a, p // a)), right))
    return xp.reshape(u, x.shape)
