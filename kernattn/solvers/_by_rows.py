r"""Eigenvectors of G of no more rows than features, by those of the rows' products :math:`\Phi \Phi^T = V S V^T`.

The eigenvectors of G are :math:`U = \Phi^T V S^{-1/2}`, and any that complete them, of the eigenvalue 0.
"""

from dataclasses import dataclass

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy import lazy
from kernattn._runtime.lazy_scipy import linalg
from kernattn.solvers._eigenbasis import Eigenbasis


@dataclass(frozen=True, eq=False)
class RowBasis:
    """Eigenvalues and eigenvectors of G, of rows."""

    kernel: Eigenbasis  # of Phi Phi^T
    rows: Float64  # Phi (n, M), n at most M

    @lazy
    def values(self) -> Float64:
        """All eigenvalues (M,), the largest first, none below 0."""
        return self._pad(np.maximum(self.kernel.values, 0.0))

    def coordinates(self, targets: Float64) -> Float64:
        """Return U^T Phi^T y (M, c) of targets y (n, c)."""
        return self._pad(self._roots[:, None] * self.kernel.coordinates(targets))

    def combine(self, a: Float64) -> Float64:
        """Return U a (M, c) of a which is 0 where eigenvalues are, as the weights of a fit."""
        roots = self._roots[:, None]
        scaled = np.divide(a[: len(roots)], roots, out=np.zeros((len(roots), a.shape[1])), where=roots > 0)
        combined: Float64 = self.rows.T @ self.kernel.combine(scaled)
        return combined

    def vectors(self, k: int) -> Float64:
        """Return the first k columns of U (M, k)."""
        return self._vectors[:, :k]

    @lazy
    def _roots(self) -> Float64:
        return np.sqrt(np.maximum(self.kernel.values, 0.0))

    @lazy
    def _vectors(self) -> Float64:
        """All eigenvectors: those that rounding has turned towards larger ones are made orthogonal again."""
        roots = self._roots
        inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
        some = (self.rows.T @ self.kernel.vectors(len(roots))) * inverse
        whole, upper = linalg.qr(some)
        signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        whole[:, : len(roots)] *= signs
        vectors: Float64 = whole
        return vectors

    def _pad(self, part: Float64) -> Float64:
        """Return numbers beside eigenvalues, with zeros for those of which there is no row."""
        n, m = self.rows.shape
        return np.concatenate([part, np.zeros((m - n, *part.shape[1:]))])
