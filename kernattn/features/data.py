"""Checks of the data that a map is chosen by."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, Host, check_floating, namespace, to_numpy64
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

__all__ = ["checked_data", "checked_pair", "pooled_data"]

SIDES = ("queries", "keys")


def checked_data(data: Array, dim: int | None = None, name: str = "data") -> Host:
    """Return data as a float64 copy on the host, which must be finite rows (n, d)."""
    namespace(**{name: data})
    check_floating(name, data)
    if data.ndim != 2 or dim not in (None, data.shape[1]):
        raise ShapeError(f"{name} must be (n, d{'' if dim is None else f' = {dim}'}); got shape {tuple(data.shape)}")
    if 0 in data.shape:
        raise EmptyInputError(f"{name} must have rows and columns; got shape {tuple(data.shape)}")
    sample = to_numpy64(data)
    if not np.isfinite(sample).all():
        raise ParameterError(f"{name} must be finite; it holds NaN or infinity")
    return sample


def checked_pair(data: Array | tuple[Array, Array], dim: int | None = None) -> tuple[Host, Host]:
    """Return queries and keys as float64 copies on the host; an array that is no pair stands for both."""
    if not isinstance(data, tuple):
        rows = checked_data(data, dim)
        return rows, rows
    if len(data) != 2:
        raise ParameterError(
            f"data must be an array (n, d) or a pair (queries, keys) of such; got a tuple of {len(data)}"
        )
    queries, keys = (checked_data(part, dim, f"{side} of data") for side, part in zip(SIDES, data, strict=True))
    if queries.shape[1] != keys.shape[1]:
        raise ShapeError(f"queries and keys of data must have as many columns; got {queries.shape} and {keys.shape}")
    return queries, keys


def pooled_data(data: Array | tuple[Array, Array], dim: int | None = None) -> Host:
    """Return the rows of data, those of a pair (queries, keys) together."""
    return np.concatenate(checked_pair(data, dim)) if isinstance(data, tuple) else checked_data(data, dim)
