r"""Eigenvectors as products U = Q S: :math:`G = Q T Q^T`, T of three diagonals, :math:`T = S \mathrm{diag}(s) S^T`."""

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import linalg

BLOCK = 64  # reflections that LAPACK takes at a time


class Eigenbasis(NamedTuple):
    """Eigenvalues of a matrix, the largest first, and eigenvectors U = Q S, of which Q stays reflections."""

    values: Float64  # (M,), descending
    inner: Float64  # S (M, M)
    reflections: Float64  # (M - 1, M - 1), of all axes but the first, in the order of Fortran
    scales: Float64  # (M - 1,)

    def coordinates(self, b: Float64) -> Float64:
        """Return U^T b (M, c)."""
        return self.inner.T @ self._turn(b, "T")

    def combine(self, a: Float64) -> Float64:
        """Return U a (M, c)."""
        return self._turn(self.inner @ a, "N")

    def vectors(self, k: int) -> Float64:
        """Return the first k columns of U (M, k)."""
        return self._turn(self.inner[:, :k], "N")

    def _turn(self, b: Float64, transposed: str) -> Float64:
        """Return Q^T b or Q b."""
        out = np.array(b)
        if len(self.scales) and out.size:
            work = BLOCK * (b.shape[1] + BLOCK + 1)
            own = self.reflections.copy(order="F")  # LAPACK writes into it, and puts back what was there
            out[1:], *_ = linalg.lapack.dormqr("L", transposed, own, self.scales, b[1:], work)
        return out


def eigenbasis(matrix: Float64) -> Eigenbasis:
    """Return the eigenvalues and vectors of a symmetric matrix (M, M)."""
    size = len(matrix)
    work = int(linalg.lapack.dsytrd_lwork(size, lower=1)[0])
    reduced, diagonal, beside, scales, _ = linalg.lapack.dsytrd(matrix.T, lower=1, lwork=work)
    values, inner = linalg.eigh_tridiagonal(diagonal, beside, check_finite=False)
    return Eigenbasis(values[::-1], np.asfortranarray(inner[:, ::-1]), np.asfortranarray(reduced[1:, :-1]), scales)
