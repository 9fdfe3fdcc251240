r"""Eigenvectors as products U = Q S: :math:`G = Q T Q^T`, T of three diagonals, :math:`T = S \mathrm{diag}(s) S^T`."""

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import linalg

BLOCK = 64  # reflections that LAPACK takes at a time


class Tridiagonal(NamedTuple):
    """A symmetric matrix as Q T Q^T, of which Q stays reflections."""

    diagonal: Float64  # (M,)
    beside: Float64  # (M - 1,)
    reflections: Float64  # (M - 1, M - 1), of all axes but the first, in the order of Fortran
    scales: Float64  # (M - 1,)

    def turn(self, b: Float64, back: bool = False) -> Float64:
        """Return Q^T b, or Q b."""
        out = np.array(b)
        if len(self.scales) and out.size:
            work = BLOCK * (b.shape[1] + BLOCK + 1)
            own = self.reflections.copy(order="F")  # LAPACK writes into it, and puts back what was there
            out[1:], *_ = linalg.lapack.dormqr("L", "N" if back else "T", own, self.scales, b[1:], work)
        return out

    @property
    def largest(self) -> float:
        """The largest eigenvalue."""
        if len(self.diagonal) == 1:
            return float(self.diagonal[0])
        values, _ = linalg.lapack.dsterf(self.diagonal, self.beside)
        return float(values[-1])

    @property
    def bound(self) -> float:
        """A number that no eigenvalue is above, by Gershgorin's circles."""
        beside = np.abs(np.concatenate([[0.0], self.beside, [0.0]]))
        return float(np.max(self.diagonal + beside[1:] + beside[:-1]))

    def solve(self, b: Float64, penalties: Float64) -> Float64:
        """Return the solutions of (T + penalty) z = b (M, c) for each penalty, (M, L, c)."""
        return self.solve_and_measure(b, penalties)[0]

    def solve_and_measure(self, b: Float64, penalties: Float64) -> tuple[Float64, Float64]:
        r"""Return the solutions, and :math:`\log|T + \lambda|` of each penalty (L,).

        Each costs O(M): all are one system of three diagonals. Where rounding leaves an eigenvalue that is less than
        minus a penalty, eigenvectors are made for it and what follows, and eigenvalues below 0 count as 0; LAPACK does
        not solve one equation.
        """
        (m, c), count = b.shape, len(penalties)
        failed = m == 1 or not count
        if not failed:
            diagonals = (self.diagonal + penalties[:, None]).ravel()
            beside = np.tile(np.append(self.beside, 0.0), count)[:-1]
            pivots, _, z, failed = linalg.lapack.dptsv(diagonals, beside, np.tile(b, (count, 1)))
        if not failed:
            logs = np.log(pivots).reshape(count, m).sum(axis=1)
            return z.reshape(count, m, c).swapaxes(0, 1), logs
        good = 0 if m == 1 else max(0, int(failed) - 1) // m
        values, inner = self.decompose()
        shifted = np.maximum(values, 0.0)[:, None] + penalties[good:]
        z = np.einsum("kj,jl,jc->klc", inner, 1 / shifted, inner.T @ b, optimize=True)
        logs = np.sum(np.log(shifted), axis=0)
        if good:
            before = self.solve_and_measure(b, penalties[:good])
            z, logs = np.concatenate([before[0], z], axis=1), np.concatenate([before[1], logs])
        return z, logs

    def decompose(self) -> tuple[Float64, Float64]:
        """Return the eigenvalues of T, ascending, and its eigenvectors S."""
        values, inner = linalg.eigh_tridiagonal(self.diagonal, self.beside, check_finite=False, lapack_driver="stevd")
        return values, inner


class Eigenbasis(NamedTuple):
    """Eigenvalues of a matrix, the largest first, and eigenvectors U = Q S."""

    values: Float64  # (M,), descending
    inner: Float64  # S (M, M)
    outer: Tridiagonal  # Q

    def coordinates(self, b: Float64) -> Float64:
        """Return U^T b (M, c)."""
        return self.inner.T @ self.outer.turn(b)

    def combine(self, a: Float64) -> Float64:
        """Return U a (M, c)."""
        return self.outer.turn(self.inner @ a, back=True)

    def vectors(self, k: int) -> Float64:
        """Return the first k columns of U (M, k)."""
        return self.outer.turn(self.inner[:, :k], back=True)


def tridiagonal(matrix: Float64) -> Tridiagonal:
    """Return a symmetric matrix (M, M) as Q T Q^T."""
    work = int(linalg.lapack.dsytrd_lwork(len(matrix), lower=1)[0])
    reduced, diagonal, beside, scales, _ = linalg.lapack.dsytrd(matrix.T, lower=1, lwork=work)
    return Tridiagonal(diagonal, beside, np.asfortranarray(reduced[1:, :-1]), scales)


def eigenbasis(matrix: Float64) -> Eigenbasis:
    """Return the eigenvalues and vectors of a symmetric matrix (M, M)."""
    outer = tridiagonal(matrix)
    values, inner = outer.decompose()
    return Eigenbasis(values[::-1], np.asfortranarray(inner[:, ::-1]), outer)
