"""Rowwise pairs on the host, where closed forms are computed."""

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, check_floating, namespace, to_numpy64
from kernattn.errors import EmptyInputError, ShapeError


def check_pairs(dim: int | None, x: Array, y: Array) -> None:
    """Raise unless x and y are rows (..., d) that broadcast, of any d where `dim` is None."""
    namespace(x=x, y=y)
    for name, array in (("x", x), ("y", y)):
        check_floating(name, array)
        if array.ndim < 1 or array.shape[-1] != (dim or x.shape[-1]):
            raise ShapeError(f"{name} must be (..., d = {dim or 'that of x'}); got shape {tuple(array.shape)}")
    try:
        np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    except (ValueError, RuntimeError):  # the latter of more axes than NumPy broadcasts
        raise ShapeError(f"pairs must broadcast; got x {tuple(x.shape)} and y {tuple(y.shape)}") from None


def host_pairs(dim: int | None, x: Array, y: Array) -> tuple[Float64, Float64]:
    """Return rows x and y (..., d) as float64 copies on the host."""
    check_pairs(dim, x, y)
    return to_numpy64(x), to_numpy64(y)


def flat_pairs(dim: int | None, x: Array, y: Array) -> tuple[Float64, Float64]:
    """Return rows x and y (..., d) as float64 copies on the host, (P, d) each, P at least 1."""
    x, y = np.broadcast_arrays(*host_pairs(dim, x, y))
    if 0 in x.shape:
        raise EmptyInputError(f"x and y must hold pairs; got shape {x.shape}")
    return x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1])


def bring_together(x: Float64, y: Float64, limit: float) -> tuple[Float64, Float64]:
    """Return rowwise pairs of which those beyond the limit are brought back to it by one power of two for both rows."""
    size = np.maximum(*(np.max(np.abs(rows), axis=-1, keepdims=True) for rows in (x, y)))
    far = np.isfinite(size) & (size > limit)
    factor = 2.0 ** -np.ceil(np.log2(np.where(far, size, limit) / limit))
    return x * factor, y * factor


def bias_of(mean: Float64, kernel: Float64) -> Float64:
    """Return a mean less its kernel; 0 where both are alike beyond the floats."""
    return np.asarray(np.where(mean == kernel, 0.0, mean - kernel))


def clean_variance(variance: Float64, mean: Float64) -> Float64:
    """Return a variance beside its mean: never negative, infinite where a difference of infinities, NaN as the mean."""
    known = np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0))
    return np.asarray(np.where(np.isnan(mean), np.nan, known))
