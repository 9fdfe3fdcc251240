"""A factor of a kernel's matrix over all rows, which is held."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kernattn.errors import ParameterError
from kernattn.kernels import Kernel
from kernattn.solvers._conjugate_gradients import Operator
from kernattn.solvers._eased import Eased

HELD = 1 << 27  # entries of the matrix, 1 GiB
FEW, EACH = 2048, 64  # rows, and rows a column more, up to which a factor takes less time than steps


def pays(n: int, c: int) -> bool:
    """Whether a factor of n rows takes less time than steps of c columns, and little enough memory.

    A factor takes n^3 / 3 products, and a step of conjugate gradients n^2 c and the kernel's values: of many columns a
    factor is worth one step or two.
    """
    return n <= FEW + EACH * c and n * n <= HELD


def invert_on_rows(kernel: Kernel | Eased, rows: Any, penalty: float, roots: Any = 1.0) -> Operator | None:
    """Return the product with the inverse of R K R + lambda, R of roots (n, 1); None where lambda is below rounding."""
    matrix = kernel(rows)
    if not np.isfinite(matrix.diagonal()).all():
        raise ParameterError("x must have a kernel matrix that float64 holds; it has infinite entries, or NaN")
    if isinstance(roots, np.ndarray):
        matrix *= roots
        matrix *= roots.T
    matrix[np.diag_indices(len(matrix))] += penalty
    try:
        factor = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    return lambda r: cho_solve(factor, r, check_finite=False)
