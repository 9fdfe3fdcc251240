"""Kernels of CSR rows, by loops over their entries, or a dense block at a time: the answer and two blocks are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernattn._arrays.csr import check_csr, dense_blocks, is_sparse
from kernattn._arrays.namespaces import Array
from kernattn._arrays.shapes import strips
from kernattn.errors import ShapeError

Blocks = Callable[..., Array]  # an answer of dense rows
Sparse = Callable[[Any, Any], Callable[[slice], Array] | None]  # of CSR rows: what makes rows of their matrix
PART = 2**20  # entries of a matrix that is only multiplied


def matrix(of: Blocks, x: Any, y: Any, sparse: Sparse) -> Array:
    """Return the kernel matrix (n, k) of rows x and y, or of x with itself, by that of dense rows if need be."""
    other = _check_other(x, y)
    rows_of = sparse(x, other) if is_sparse(x) and is_sparse(other) else None
    if rows_of is not None:
        return rows_of(slice(0, x.shape[0]))
    out = np.empty((x.shape[0], other.shape[0]), x.dtype)
    for i, rows in dense_blocks(x):
        for j, more in dense_blocks(other):
            out[i, j] = of(rows) if y is None and i == j else of(rows, more)
    return out


def product(of: Blocks, x: Any, y: Any, v: Array, sparse: Sparse) -> Array:
    """Return the kernel matrix of x and y times v (k,) or (k, c)."""
    other = _check_other(x, y)
    if v.ndim not in (1, 2) or v.shape[0] != other.shape[0]:
        raise ShapeError(f"v must be ({other.shape[0]},) or ({other.shape[0]}, c); got shape {tuple(v.shape)}")
    rows_of = sparse(x, other) if is_sparse(x) and is_sparse(other) and v.size and v.dtype == x.dtype else None
    out = np.zeros((x.shape[0], *v.shape[1:]), x.dtype)
    if rows_of is not None:
        for here in strips(x.shape[0], PART // other.shape[0]):
            out[here] = rows_of(here) @ v
        return out
    for i, rows in dense_blocks(x):
        for j, more in dense_blocks(other):
            out[i] += of(rows, None if y is None and i == j else more, v[j])
    return out


def diagonal(of: Blocks, x: Any) -> Array:
    """Return k(x_i, x_i) of rows, (n,)."""
    _check_other(x, None)
    return np.concatenate([of(rows) for _, rows in dense_blocks(x)])


def pairs(of: Blocks, x: Any, y: Any) -> Array:
    """Return k(x_i, y_i) of rowwise pairs, (n,)."""
    _check_other(x, y)
    if tuple(x.shape) != tuple(y.shape):
        raise ShapeError(f"sparse rows and those beside them must have one shape; got {x.shape} and {tuple(y.shape)}")
    sparse, other = (x, y) if is_sparse(x) else (y, x)
    parts = ((rows, (other[i].toarray() if is_sparse(other) else other[i])) for i, rows in dense_blocks(sparse))
    return np.concatenate([of(*(pair if sparse is x else pair[::-1])) for pair in parts])


def _check_other(x: Any, y: Any) -> Any:
    """Return the other rows: those given, or x."""
    for name, rows in (("x", x), ("y", y)):
        if is_sparse(rows):
            check_csr(name, rows)
        elif rows is not None and getattr(rows, "ndim", 0) != 2:
            raise ShapeError(f"{name} must be (n, d) beside sparse rows; got shape {getattr(rows, 'shape', ())}")
    return x if y is None else y
