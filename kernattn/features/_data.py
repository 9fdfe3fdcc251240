"""Checks of the data that a map is chosen by."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.csr import check_csr
from kernattn._arrays.namespaces import Array, Float64, check_computed, check_floating, namespace, to_numpy64
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError

SIDES = ("queries", "keys")
SAMPLE = 64  # rows whose pairs decide
LARGEST = 1e40  # of data in a kernel's own scale: what maps are shaped by, its squares, they can hold


class Data(NamedTuple):
    """Inputs as they will come, float64 on the host."""

    queries: Float64
    keys: Float64
    rows: Float64  # of both; one array stands for all three

    @property
    def apart(self) -> bool:
        """Whether queries and keys were given apart, and neither are one row over and over."""
        return self.queries is not self.keys and all(bool(np.ptp(side, axis=0).any()) for side in self[:2])


def checked_data(data: Array, dim: int | None = None, name: str = "data") -> Float64:
    """Return data as a float64 copy on the host, which must be finite rows (n, d)."""
    namespace(**{name: data})
    check_computed(name, data)
    check_floating(name, data)
    if data.ndim != 2 or dim not in (None, data.shape[1]):
        raise ShapeError(f"{name} must be (n, d{'' if dim is None else f' = {dim}'}); got shape {tuple(data.shape)}")
    if 0 in data.shape:
        raise EmptyInputError(f"{name} must have rows and columns; got shape {tuple(data.shape)}")
    sample = to_numpy64(data, name)
    if not np.isfinite(sample).all():
        row = int(np.argmin(np.isfinite(sample).all(axis=1)))
        raise ParameterError(f"{name} must be finite; it holds NaN or infinity in row {row}")
    return sample


def checked_csr(data: Any) -> Any:
    """Return a CSR matrix of data in float64, which must hold finite numbers."""
    check_csr("data", data)
    if not (good := np.isfinite(data.data)).all():
        row = int(np.searchsorted(data.indptr, int(np.argmin(good)), side="right")) - 1
        raise ParameterError(f"data must be finite; it holds NaN or infinity in row {row}")
    return data.astype(np.float64, copy=False)


def check_inputs(data: Array | tuple[Array, Array], dim: int | None = None) -> Data:
    """Return rows (n, d), or a pair (queries, keys) of such; an array that is no pair stands for both."""
    if isinstance(data, list) and len(data) == 2 and not any(isinstance(side, list | Real) for side in data):
        raise DTypeError("data must be an array (n, d) or a tuple (queries, keys) of such; got a list of 2")
    if not isinstance(data, tuple):
        rows = checked_data(data, dim)
        return Data(rows, rows, rows)
    if len(data) != 2:
        raise ParameterError(
            f"data must be an array (n, d) or a pair (queries, keys) of such; got a tuple of {len(data)}"
        )
    queries, keys = (checked_data(part, dim, f"{side} of data") for side, part in zip(SIDES, data, strict=True))
    if queries.shape[1] != keys.shape[1]:
        raise ShapeError(f"queries and keys of data must have as many columns; got {queries.shape} and {keys.shape}")
    return Data(queries, keys, np.concatenate([queries, keys]))


def check_size(rows: Float64, scale: Float64) -> None:
    """Raise where rows are so large in the scale of a kernel that no map can be chosen by them."""
    with np.errstate(over="ignore", under="ignore"):
        most = float(np.max(np.max(np.abs(rows), axis=0) * scale))
    if most > LARGEST:
        raise ParameterError(
            f"data must hold numbers up to {LARGEST:g} in the kernel's own scale, x' = c x; the largest is {most:.3g} "
            "there"
        )


def sample_pairs(queries: Float64, keys: Float64) -> tuple[Float64, Float64]:
    """Return pairs of rows (n, d) and (l, d), each with each: (s, 1, d) and (1, t, d), rows evenly spaced."""
    return _space_rows(queries)[:, None, :], _space_rows(keys)[None, :, :]


def _space_rows(rows: Float64) -> Float64:
    spaced: Float64 = rows[np.linspace(0, len(rows) - 1, min(len(rows), SAMPLE)).astype(int)]
    return spaced
