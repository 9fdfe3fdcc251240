"""Checks of the data that a map is chosen by."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, Host, check_floating, namespace, to_numpy64
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

__all__ = ["checked_data"]


def checked_data(data: Array, dim: int | None = None, name: str = "data") -> Host:
    """Return data as a float64 copy on the host, which must be finite rows (n, d)."""
    namespace(**{name: data})
    check_floating(name, data)
    if data.ndim != 2 or dim not in (None, data.shape[1]):
        raise ShapeError(f"{name} must be (n, d{'' if dim is None else f' = {dim}'}); got shape {tuple(data.shape)}")
    if 0 in data.shape:
        raise EmptyInputError(f"data must have rows and columns; got shape {tuple(data.shape)}")
    sample = to_numpy64(data)
    if not np.isfinite(sample).all():
        raise ParameterError(f"{name} must be finite; it holds NaN or infinity")
    return sample
