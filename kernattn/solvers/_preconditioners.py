"""Preconditioners of conjugate gradients: inverses of sums over rows, plus a penalty."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.shapes import strips
from kernattn.errors import ParameterError
from kernattn.features import Nystrom
from kernattn.kernels import Kernel
from kernattn.ops.gram import OP as GRAM
from kernattn.solvers._conjugate_gradients import Operator


def _least(phi: Nystrom) -> float:
    """Return the part of the largest eigenvalue below which the map takes none."""
    return max(phi.cutoff, 10 * float(np.finfo(float).eps))


def invert_root(phi: Nystrom) -> Float64:
    """Return the inverse root of the landmarks' matrix, as the map takes it in float64: features times it are k."""
    values = phi.eigenvalues
    kept = values > _least(phi) * values[-1]
    vectors: Float64 = phi.eigenvectors[:, kept] * values[kept] ** -0.5
    return vectors @ phi.eigenvectors[:, kept].T


def invert(gram: Float64, penalty: float, rounding: float) -> Operator:
    """Return the product with the inverse of G + lambda."""
    if not penalty > rounding:
        raise ParameterError(f"penalty must be above the rounding of sums over rows, {rounding:.3g}; got {penalty:g}")
    factor = cho_factor(gram + penalty * np.eye(len(gram)), lower=True, check_finite=False)
    return lambda r: cho_solve(factor, r, check_finite=False)


def sum_kernel(kernel: Kernel, rows: Float64, landmarks: Float64, targets: Float64) -> tuple[Float64, Float64]:
    """Return K_nL^T K_nL and K_nL^T y."""
    gram, cross = np.zeros((len(landmarks),) * 2), np.zeros((len(landmarks), targets.shape[1]))
    for here in strips(len(rows)):
        block = kernel(rows[here], landmarks)
        part = GRAM.implementation(block, None)(block, targets[here], None, True)
        gram += part[0]
        cross += part[1]
    return gram, cross


def invert_on_landmarks(phi: Nystrom, sums: Float64, penalty: float) -> Operator | None:
    """Return the product with the inverse of K_LL^(-1/2) S K_LL^(-1/2) + lambda.

    None, where eigenvalues of K_LL are so small that they make more than lambda of the rounding of S.
    """
    values = phi.eigenvalues
    rounding = 4 * float(np.finfo(float).eps * np.linalg.norm(sums))
    kept = values > _least(phi) * values[-1]
    if np.min(values, where=kept, initial=np.inf) * penalty < rounding:
        return None
    inner = phi.eigenvectors[:, kept]
    turned = inner * values[kept] ** -0.5
    inverse = invert(turned.T @ sums @ turned, penalty, rounding / values[-1])

    def solve(r: Float64) -> Float64:
        inside = inner.T @ r
        solution: Float64 = inner @ (inverse(inside) - inside / penalty) + r / penalty
        return solution

    return solve
