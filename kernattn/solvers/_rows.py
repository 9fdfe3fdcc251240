"""Rows of a fit with the kernel itself, dense or CSR, their targets and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._arrays.csr import check_csr, is_sparse, numbers_of, take_rows
from kernattn._arrays.namespaces import Array, Float64, check_floating, frozen, namespace, to_numpy64
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._data import checked_data
from kernattn.solvers._check import check_beside, check_finite


def check_and_copy(x: Array, y: Array, sparse: bool = False) -> tuple[Any, Float64]:
    """Return rows (n, d), which may be CSR where `sparse`, and targets (n, c), copies in float64 on the host."""
    csr = sparse and is_sparse(x)
    namespace(x=numbers_of(x) if csr else x, y=y)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    if csr:
        check_csr("x", x)
    else:
        check_floating("x", x)
    check_beside("y", y, x.shape[0], columns=True)
    for name, array in (("x", x), ("y", y)):
        check_finite(name, array)
    rows = x.astype(np.float64, copy=True) if csr else checked_data(x, name="x")
    return rows, to_numpy64(y).reshape(x.shape[0], -1)


def weigh(rows: Any, targets: Float64, weights: Array | None) -> tuple[Any, Float64, Any]:
    r"""Return the rows that count, their targets times the roots of their weights, and these roots (n, 1), or 1.

    Of :math:`w = R u`, R the roots, the system is :math:`(R K R + \lambda) u = R y`.
    """
    if weights is None:
        return rows, targets, 1.0
    check_beside("weights", weights, rows.shape[0], columns=False)
    check_finite("weights", weights)
    shares = to_numpy64(weights)
    if np.min(shares) < 0 or not np.any(shares):
        raise ParameterError(f"weights must be 0 or more, and not 0 in all rows; the least is {np.min(shares):g}")
    counted = np.flatnonzero(shares)
    roots = np.sqrt(shares[counted])[:, None]
    return take_rows(rows, counted), roots * targets[counted], roots


def freeze(rows: Any) -> Any:
    """Return rows, from now on read-only where they are an array."""
    return rows if is_sparse(rows) else frozen(rows)


def are_same(one: Any, other: Any) -> bool:
    """Whether rows, dense or CSR, are the same numbers."""
    if is_sparse(one) and is_sparse(other):
        return one.shape == other.shape and not (one != other).nnz
    return not is_sparse(one) and not is_sparse(other) and np.array_equal(one, other)
