"""The system of a kernel's matrix over all rows and a penalty: by a factor that is held, or by conjugate gradients."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.deprecated import warn_user
from kernattn.kernels import Kernel
from kernattn.solvers._kernel_ridge import kernel_ridge

HELD = 1 << 27  # entries of the matrix, 1 GiB
FEW, EACH = 2048, 64  # rows, and rows a column more, up to which a factor takes less time than steps
TOLERANCE, STEPS = 1e-8, 1000  # of conjugate gradients
MOST = 500  # landmarks of their preconditioner


def solve_on_rows(rows: Float64, y: Float64, kernel: Kernel, penalty: float, rng: np.random.Generator) -> Float64:
    r"""Return :math:`(K + \lambda)^{-1} y` of columns y (n, c).

    A factor takes n^3 / 3 products, and a step of conjugate gradients n^2 c and the kernel's values: of many columns a
    factor is worth one step or two.
    """
    n, c = y.shape
    if n <= FEW + EACH * c and n * n <= HELD:
        matrix = kernel(rows)
        matrix[np.diag_indices(n)] += penalty
        try:
            factor = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:  # the penalty is below rounding
            pass
        else:
            solution: Float64 = cho_solve(factor, y, check_finite=False)
            return solution
        del matrix
    fit = kernel_ridge(
        rows, y, kernel, penalty=penalty, num_landmarks=min(n, MOST), method="rpcholesky", exact=True,
        tolerance=TOLERANCE, max_iterations=STEPS, rng=rng,
    )  # fmt: skip
    if not fit.converged:
        warn_user(
            f"functions at the data are inexact: conjugate gradients left {np.max(fit.residuals[-1]):.1g} of the "
            f"targets after {fit.iterations} steps; take a larger noise, or leave out data=",
            UserWarning,
        )
    return fit._weights
