r"""The evidence of a few features beside a line of many columns, whose eigenvectors are found once for all kernels.

Of a line L and features F as rows, with :math:`L L^T = V S V^T`, the Gram matrix of both is, in these eigenvectors,

.. math:: \begin{pmatrix} S & C^T \\ C & F F^T \end{pmatrix}, \quad C = F L^T V,

and with a penalty, elimination of S leaves :math:`F F^T + \lambda - C (S + \lambda)^{-1} C^T`, a small matrix.
"""

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import linalg, optimize
from kernattn.solvers._eigenbasis import Eigenbasis, eigenbasis


class WideLine(NamedTuple):
    """A line and targets, both of mean 0."""

    features: Float64  # L (d, n)
    basis: Eigenbasis  # of L L^T
    values: Float64  # S (d,), descending, none below 0
    coordinates: Float64  # V^T L y (d, c)

    def beside(self, features: Float64, targets: Float64) -> "Beside":
        """Return features F (m, n) of mean 0 beside the line; m may be 0."""
        cross = self.basis.coordinates(self.features @ features.T).T
        return Beside(self, cross, features @ features.T, features @ targets)


class Beside(NamedTuple):
    """Features beside a line, as sums of products."""

    line: WideLine
    cross: Float64  # C (m, d)
    gram: Float64  # F F^T (m, m)
    products: Float64  # F y (m, c)

    @property
    def largest(self) -> float:
        r"""The largest eigenvalue: the :math:`\mu` that :math:`F F^T + C (\mu - S)^{-1} C^T` has, too."""
        values = self.line.values
        low, high = float(values[0]) * (1 + 4 * np.finfo(float).eps), float(values[0] + np.trace(self.gram))

        def above(mu: float) -> float:
            half = self.cross / np.sqrt(mu - values)
            return float(linalg.eigvalsh(self.gram + half @ half.T)[-1]) - mu

        if not low < high or above(low) <= 0:
            return float(values[0])
        found: float = optimize.brentq(above, low, high * (1 + 1e-12), xtol=1e-14 * high, rtol=1e-14)
        return found

    def solve_and_measure(self, penalties: Float64) -> tuple[Float64, Float64]:
        r"""Return :math:`B^T (G + \lambda)^{-1} B` of each target (L, c), and :math:`\log|G + \lambda|` (L,)."""
        values, b = self.line.values, self.line.coordinates
        quadratics, logs = np.empty((len(penalties), b.shape[1])), np.empty(len(penalties))
        for at, penalty in enumerate(penalties):
            shifted = values + penalty
            half, scaled = self.cross / np.sqrt(shifted), b / np.sqrt(shifted)[:, None]
            left = self.gram - half @ half.T
            left[np.diag_indices(len(left))] += penalty
            lower = linalg.cholesky(left, lower=True, check_finite=False)
            rest = linalg.solve_triangular(lower, self.products - half @ scaled, lower=True, check_finite=False)
            quadratics[at] = np.sum(scaled**2, axis=0) + np.sum(rest**2, axis=0)
            logs[at] = np.sum(np.log(shifted)) + 2 * np.sum(np.log(np.diagonal(lower)))
        return quadratics, logs


def wide_line(line: Float64, targets: Float64) -> WideLine:
    """Return a line (d, n), less its means, with targets (n, c) of mean 0."""
    features = line - line.mean(axis=1, keepdims=True)
    basis = eigenbasis(features @ features.T)
    return WideLine(features, basis, np.maximum(basis.values, 0.0), basis.coordinates(features @ targets))
