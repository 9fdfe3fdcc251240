"""The system of a kernel's matrix over all rows and a penalty: by a factor that is held, or by conjugate gradients."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.deprecated import warn_user
from kernattn.kernels import Kernel
from kernattn.solvers._factor import invert_on_rows, pays
from kernattn.solvers._kernel_ridge import kernel_ridge

TOLERANCE, STEPS = 1e-8, 1000  # of conjugate gradients
MOST = 500  # landmarks of their preconditioner


def solve_on_rows(rows: Float64, y: Float64, kernel: Kernel, penalty: float, rng: np.random.Generator) -> Float64:
    r"""Return :math:`(K + \lambda)^{-1} y` of columns y (n, c)."""
    n, c = y.shape
    if pays(n, c) and (inverse := invert_on_rows(kernel, rows, penalty)) is not None:
        return inverse(y)
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
