r"""Inputs of polynomial kernels: :math:`(\gamma x^T y + c)^p = (\tilde x^T \tilde y)^p`, where
:math:`\tilde x = (\gamma^{1/2} x, c^{1/2})`.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, constant, namespace
from kernattn._runtime.lazy_scipy import sparse
from kernattn._sums.units import in_units, scaled_down
from kernattn.kernels import Polynomial


def width(kernel: Polynomial, dim: int) -> int:
    """Return how many numbers a row has once the kernel's constant is appended."""
    return dim + (kernel.coef0 > 0)


def augment(kernel: Polynomial, x: Array, octaves: Array | float = 0.0) -> Array:
    """Return rows (..., n, d) scaled and with the constant appended, in their dtype, for 2^octaves times x over it."""
    xp = namespace(x=x)
    x = x * constant(xp, kernel.input_scale(x.shape[-1]), x.dtype, x)
    if kernel.coef0 > 0:
        x = xp.concat([x, xp.full_like(x[..., :1], kernel.coef0**0.5) * 2.0**-octaves], axis=-1)
    return x


def augment_csr(kernel: Polynomial, x: Any) -> Any:
    """Return the rows of a CSR matrix scaled and with the constant appended, as CSR in their dtype."""
    scale = kernel.input_scale(x.shape[1]).astype(x.dtype)
    x = sparse.csr_array((x.data * scale[x.indices], x.indices, x.indptr), shape=x.shape)
    if kernel.coef0 > 0:
        column = np.full((x.shape[0], 1), kernel.coef0**0.5, x.dtype)
        x = sparse.hstack([x, sparse.csr_array(column)], format="csr")
    return x


def unit_rows(kernel: Polynomial, x: Array) -> tuple[Array, Array]:
    """Return augmented rows over their largest magnitude, and its logarithm (..., n, 1); 0 for a row of zeros."""
    xp = namespace(x=x)
    x, octaves = scaled_down(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False))
    x = augment(kernel, x, octaves)
    size = xp.max(xp.abs(x), axis=-1, keepdims=True)
    size = xp.where(xp.isfinite(size) & (size > 0), size, xp.ones_like(size))
    return x / size, xp.log(size) + log(2) * octaves


class PairSums(NamedTuple):
    """What the variance of a sketch depends on, for augmented rows x, y."""

    dot: Float64  # x.y
    square: Float64  # (x.y)^2
    norms: Float64  # |x|^2 |y|^2
    shared: Float64  # sum_i x_i^2 y_i^2
    largest: Float64  # |x|_1 |y|_1


def pair_sums(kernel: Polynomial, x: Float64, y: Float64) -> tuple[PairSums, Float64]:
    """Return the sums of rowwise pairs (..., d) over powers of two of their sizes, and the octaves.

    A sum of degree p in the rows is that of the pair 2^(p octaves) times.
    """
    (left, a), (right, b) = (_scale_rows(kernel, rows) for rows in (x, y))
    dot = np.sum(left * right, axis=-1)
    norms = np.sum(left**2, axis=-1) * np.sum(right**2, axis=-1)
    shared = np.sum((left * right) ** 2, axis=-1)
    largest = np.sum(np.abs(left), axis=-1) * np.sum(np.abs(right), axis=-1)
    return PairSums(dot, dot**2, norms, shared, largest), (a + b)[..., 0]


def _scale_rows(kernel: Polynomial, x: Float64) -> tuple[Float64, Float64]:
    """Return augmented rows over a power of two of their size, and the octaves (..., 1)."""
    x, octaves = scaled_down(np, x)
    x, more = in_units(np, augment(kernel, x, octaves))
    return x, octaves + more
