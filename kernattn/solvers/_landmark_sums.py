r"""Sums over rows for kernel ridge regression on landmarks, in coordinates that lose no digits.

With the factor L of the landmarks' matrix, pivots first, features are :math:`\phi(x) = L^{-1} k(P, x)`. Sums of
products of kernel values round by epsilons of n, which features of small pivots would magnify. Of the kernel that the
first few landmarks leave over, sums are so small that what they round by is too: those are summed,

.. math:: \tilde f(x) = M \phi(x), \qquad M = \mathrm{diag}(I, L_{22}), \qquad L = [L_{11}, 0; L_{21}, L_{22}],

at 2 n m flops for each landmark that is taken off.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.blas import dgemm, dsymm, dsyrk
from scipy.linalg.lapack import dpstrf, dtrtri

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.shapes import strips
from kernattn.errors import ParameterError
from kernattn.solvers._eased import Eased

EPSILON = float(np.finfo(float).eps)
NULL = 10 * EPSILON  # of the matrix's norm: pivots below are none
ROUNDING = 4 * EPSILON  # of the roots of what two columns sum to by themselves: by so much their product rounds
ENOUGH = 1 / 64  # of the penalty: sums that round by no more are as good as exact
LEAST = 32  # landmarks that are taken off first
ROWS, NUMBERS = 2048, 1 << 21  # of a block of kernel values


class Landmarks(NamedTuple):
    """Landmarks in the order of pivots, and the factor of their matrix."""

    points: Float64  # (r, d)
    order: NDArray[np.int64]  # (r,): which of m they are
    lower: Float64  # (r, r)
    heights: Float64  # (r,): squared norms of columns of L^-1, of those of L_22^-1 too
    given: int  # m

    def weights_of(self, v: Float64) -> Float64:
        """Return the weights (m, c) of landmarks for those v (r, c) of features: none beyond the rank."""
        weights = np.zeros((self.given, v.shape[1]))
        weights[self.order] = solve_triangular(self.lower, v, lower=True, trans=1, check_finite=False)
        return weights

    def onto(self, cross: Float64) -> Float64:
        """Return products with features, of those with kernel values (r, c)."""
        features: Float64 = solve_triangular(self.lower, cross, lower=True, check_finite=False)
        return features


def pivot(points: Float64, matrix: Float64, cutoff: float) -> Landmarks:
    """Return landmarks (m, d) by pivots of their matrix, up to its rank; what is below the cutoff counts as none.

    The matrix is written over.
    """
    size = float(np.linalg.norm(matrix))
    factor, order, rank, _ = dpstrf(matrix.T, tol=NULL * size, lower=1, overwrite_a=True)
    if rank == 0:
        raise ParameterError("landmarks must have a positive semidefinite kernel matrix; no pivot of it is positive")
    lower = np.tril(factor[:rank, :rank])
    squares = np.einsum("ij,ij->j", lower, lower)
    left = np.cumsum(squares[::-1])[::-1]  # traces of what pivots leave
    rank = int(np.count_nonzero(left > cutoff * size))
    order, lower = order[:rank].astype(np.int64) - 1, lower[:rank, :rank]
    inverse, _ = dtrtri(lower.T)
    return Landmarks(points[order], order, lower, np.einsum("ij,ij->i", inverse, inverse), len(points))


class Sums(NamedTuple):
    """The system (G + lambda M M^T) z = B of sums over rows, v = M^T z, and its factor."""

    landmarks: Landmarks
    taken: int  # landmarks that are taken off
    matrix: Float64  # (r, r), the upper triangle of G + lambda M M^T
    factor: Float64
    spread: Float64  # (r,), roots of the diagonal of G
    penalty: float

    def precondition(self, r: Float64) -> Float64:
        """Return (Phi^T Phi + lambda)^-1 r of features."""
        return self._across(cho_solve((self.factor, False), self._along(r), check_finite=False))

    def solve(self, cross: Float64, sizes: Float64) -> tuple[Float64, Float64]:
        """Return the weights of features for B (r, c), and the relative residuals (c,): what is left and may round.

        `sizes` are the norms of targets.
        """
        z = cho_solve((self.factor, False), cross, check_finite=False)
        left = self.onto(cross - dsymm(1.0, self.matrix, z))
        gain = self.spread**2 @ _magnified(self.landmarks, self.taken)
        rounded = ROUNDING * gain**0.5 * (self.spread @ np.abs(z) + sizes)
        wanted = np.linalg.norm(self.onto(cross), axis=0)
        wanted[wanted == 0] = 1.0
        return self._across(z), (np.linalg.norm(left, axis=0) + rounded) / wanted

    def _inner(self) -> Float64:
        return self.landmarks.lower[self.taken :, self.taken :]

    def _along(self, v: Float64) -> Float64:
        """Return M v."""
        return np.concatenate([v[: self.taken], self._inner() @ v[self.taken :]])

    def _across(self, v: Float64) -> Float64:
        """Return M^T v."""
        return np.concatenate([v[: self.taken], self._inner().T @ v[self.taken :]])

    def onto(self, v: Float64) -> Float64:
        """Return M^-1 v."""
        rest = v[self.taken :]
        rest = solve_triangular(self._inner(), rest, lower=True, check_finite=False) if len(rest) else rest
        return np.concatenate([v[: self.taken], rest])


def sum_rows(
    kernel: Eased,
    landmarks: Landmarks,
    rows: Any,
    targets: Float64,
    penalty: float,
    scale: float = 1.0,
    roots: Any = 1.0,
) -> tuple[Sums, Float64]:
    """Return the system of sums over rows, times `scale`, and B (r, c) of the targets (n, c) in its coordinates.

    Rows count by their `roots` (n, 1), squared, if they have any.
    """
    rank, counted = len(landmarks.lower), np.broadcast_to(roots, (rows.shape[0], 1))
    taken, inner = _choose_taken(landmarks, scale * float(np.sum(counted**2)), penalty)
    while True:
        gram, cross = _add_rows(kernel, landmarks, rows, targets, taken, counted)
        if scale != 1:
            gram *= scale
        squares = gram.diagonal().copy()
        gram[taken:, taken:] += penalty * inner
        gram[np.diag_indices(taken)] += penalty
        try:
            factor, _ = cho_factor(gram, check_finite=False)
        except np.linalg.LinAlgError:
            factor = None
        total = float(np.sum(squares))
        rounding = ROUNDING * total if taken == rank or not np.isfinite(total) else 0.0
        if factor is not None and penalty > rounding:
            return Sums(landmarks, taken, gram, factor, np.sqrt(squares), penalty), cross
        if taken == rank:
            raise ParameterError(
                f"penalty must be above the rounding of sums over rows, {rounding * kernel.unit:.3g}; got "
                f"{penalty * kernel.unit:g}"
            )
        taken, inner = rank, np.zeros((0, 0))


def _choose_taken(landmarks: Landmarks, n: float, penalty: float) -> tuple[int, Float64]:
    """Return how many landmarks are to be taken off, and M M^T of the others.

    It is the least number, so that sums over n rows like landmarks round by no more than part of the penalty.
    """
    lower, rank = landmarks.lower, len(landmarks.lower)
    taken = 0
    while taken < rank:
        inner = lower[taken:, taken:]
        inner = inner @ inner.T
        squares = n / rank * np.einsum("ij,ij->j", inner, inner)
        if ROUNDING * squares @ landmarks.heights[taken:] <= ENOUGH * penalty:
            return taken, inner
        taken = max(LEAST, 2 * taken)
    return rank, np.zeros((0, 0))


def _magnified(landmarks: Landmarks, taken: int) -> Float64:
    """Return by how much M^-1 magnifies each square, (r,)."""
    return np.concatenate([np.ones(taken), landmarks.heights[taken:]])


def _add_rows(
    kernel: Eased, landmarks: Landmarks, rows: Any, targets: Float64, taken: int, roots: Float64
) -> tuple[Float64, Float64]:
    """Return the upper triangle of F^T F, and F^T y."""
    points, lower = landmarks.points, landmarks.lower
    rank = len(lower)
    gram, cross = np.zeros((rank, rank), order="F"), np.zeros((rank, targets.shape[1]))
    first, below = lower[:taken, :taken], np.zeros((rank, taken), order="F")
    below[taken:] = lower[taken:, :taken]
    weighted = bool(np.any(roots != 1))
    for here in strips(rows.shape[0], max(1, min(ROWS, NUMBERS // rank))):
        block = kernel(rows[here], points)
        block = (roots[here] * block if weighted else block).T
        if taken:
            own = solve_triangular(first, block[:taken], lower=True, check_finite=False)
            if taken < rank:
                block = dgemm(-1.0, below, own, beta=1.0, c=block, overwrite_c=True)
            block[:taken] = own
        gram = dsyrk(1.0, block, beta=1.0, c=gram, overwrite_c=True)
        if cross.size:
            cross += block @ targets[here]
    return gram, cross
