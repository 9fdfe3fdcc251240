"""CSR matrices of SciPy: rows that are looked at a dense block at a time."""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import INTEGERS, Array, Float64, dtype_name, indices, namespace
from kernattn._arrays.shapes import STRIP, strips
from kernattn.errors import DTypeError, EmptyInputError, ShapeError

ROOM = 2**21  # numbers of a dense block: 16 MiB of float64


class Entries(NamedTuple):
    """What a CSR matrix stores of its rows, or a CSC matrix of its columns."""

    values: Float64  # (E,)
    indices: NDArray[np.int64]  # (E,)
    starts: NDArray[np.int64]  # (n + 1,)


def is_sparse(x: Any) -> bool:
    """Say whether x is a sparse matrix or array of SciPy, which need not be loaded."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(x))


def numbers_of(x: Any) -> Array:
    """Return an array of the numbers that x holds: those stored of a sparse matrix, else x."""
    return x.data if is_sparse(x) else x


def as_floats(name: str, x: Any) -> Any:
    """Return bits and whole numbers, dense or sparse, as float32; other arrays as they are."""
    if is_sparse(x):
        return x.astype(np.float32) if x.dtype.kind in "biu" else x
    xp = namespace(**{name: x})
    return xp.astype(x, xp.float32) if dtype_name(x) in ("bool", *INTEGERS) else x


def dense_blocks(x: Any) -> Iterator[tuple[slice, Array]]:
    """Return places and rows of all of x (n, d) in turn, dense: a block of CSR has `ROOM` numbers, or one row."""
    if not is_sparse(x):
        return ((here, x[here, ...]) for here in strips(x.shape[0]))
    return ((here, x[here].toarray()) for here in strips(x.shape[0], min(STRIP, ROOM // x.shape[1])))


def by_blocks(function: Callable[[Array], Array], x: Any, columns: int) -> Array:
    """Return a function (rows, d) -> (rows, columns) of all of x, which it sees a dense block at a time."""
    out = np.empty((x.shape[0], columns), x.dtype)
    for here, rows in dense_blocks(x):
        out[here] = function(rows)
    return out


def check_csr(name: str, x: Any, dim: int | None = None) -> None:
    """Raise unless x is a floating CSR matrix (n, d), of rows that a map of so many columns takes."""
    if x.format != "csr":
        raise DTypeError(f"a sparse {name} must be in CSR format; got {x.format!r}, which {name}.tocsr() converts")
    if x.dtype not in (np.float32, np.float64):
        raise DTypeError(f"a sparse {name} must be float32 or float64; got {x.dtype}")
    if x.ndim != 2 or dim not in (None, x.shape[1]):
        drawn = "" if dim is None else f"have d = {dim} columns, as the map was drawn"
        raise ShapeError(f"{name} must {drawn or 'be (n, d)'}; got shape {x.shape}")
    if 0 in x.shape:
        raise EmptyInputError(f"{name} must have rows and columns; got shape {x.shape}")
    starts, columns, d = x.indptr, x.indices, x.shape[1]  # by which loops index
    if not (
        len(starts) == x.shape[0] + 1
        and starts[0] == 0
        and (starts[1:] >= starts[:-1]).all()
        and starts[-1] <= min(len(columns), len(x.data))
        and (x.nnz == 0 or (columns[: starts[-1]].min() >= 0 and columns[: starts[-1]].max() < d))
    ):
        raise ShapeError(f"{name} must be a CSR matrix whose rows hold columns 0 to {d - 1}; its indices say otherwise")


def without_zeros(x: Any) -> Any:
    """Return CSR rows whose columns are sorted, each held once, and none for a 0: a copy where x is anything else."""
    if x.has_canonical_format and len(x.data) == len(x.indices) == x.nnz and np.all(x.data):
        return x
    x = x.copy()
    x.sum_duplicates()
    x.eliminate_zeros()
    return x


def entries_of(x: Any) -> Entries:
    """Return the entries of a CSR or CSC matrix."""
    return Entries(x.data.astype(np.float64), x.indices.astype(np.int64), x.indptr.astype(np.int64))


def take_rows(x: Array, rows: Any) -> Array:
    """Return some rows of an array or a CSR matrix."""
    return x[rows] if is_sparse(x) else namespace(x=x).take(x, indices(namespace(x=x), rows, x), axis=0)
