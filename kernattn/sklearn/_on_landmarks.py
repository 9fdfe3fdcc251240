"""The evidence of kernels with a line beside them, on landmarks."""

from dataclasses import dataclass, field

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy import lazy
from kernattn._runtime.lazy_scipy import linalg
from kernattn.errors import KernattnError
from kernattn.kernels import Kernel
from kernattn.sklearn._beside_line import WideLine, wide_line
from kernattn.sklearn._inputs import LOWEST
from kernattn.solvers._digests import folds_of
from kernattn.solvers._eigenbasis import tridiagonal
from kernattn.solvers._folds import LeftOutRows
from kernattn.solvers._spectrum import HIGHEST, LEAST

LANDMARKS = 128
NUGGET = 1e-9  # of the landmarks' mean kernel value with themselves, which leaves their matrix a factor
WIDE = 1024  # features of a line, from which on its eigenvectors are worth finding
PENALTIES, TRIED = 60, 16  # that are tried by the evidence, and on folds


@dataclass(eq=False)
class Judge:
    """What kernels are judged by: rows, of which the first are landmarks, and targets of mean 0."""

    rows: Float64  # (n, d)
    targets: Float64  # (n, c)
    line: Float64 | None  # (d, n), features of a line
    _best: tuple[float, Kernel | None, Float64, Float64 | None] | None = field(default=None, init=False)  # and its sums
    _room: Float64 | None = field(default=None, init=False)  # for features, which new memory would take longer

    def log_evidence(self, kernel: Kernel | None) -> float:
        """Return the largest log evidence of a kernel, or of the line alone, summed over targets.

        The penalty of each target is one of those that a fit may choose. Minus infinity stands for a kernel that is 0
        or beyond its dtype.
        """
        try:
            features = self._features(kernel)
        except (KernattnError, np.linalg.LinAlgError):
            return -np.inf
        n = len(self.rows)
        size = float(np.vdot(features, features)) / n
        if not LEAST < size < np.inf:
            return -np.inf
        features -= features.mean(axis=1, keepdims=True)
        count, gram = len(features) - (0 if self.line is None else len(self.line)), None
        if self._wide is None:
            gram = features @ features.T
            found = self._evidence_of(gram, features @ self.targets, LOWEST * size)
        else:
            found = self._evidence_beside(self._wide, features[:count], LOWEST * size)
        self._room = features
        if self._best is None or found > self._best[0]:
            self._room = None if self._best is None else self._best[2]
            self._best = found, kernel, features, gram
        return found

    def _evidence_of(self, gram: Float64, cross: Float64, lowest: float) -> float:
        """Return the sum over targets of the largest log evidence of a penalty, from sums of products less means."""
        inner = tridiagonal(gram)
        turned = inner.turn(cross)
        penalties = np.geomspace(lowest, HIGHEST * max(inner.largest, lowest), PENALTIES)
        solved, logs = inner.solve_and_measure(turned, penalties)
        quadratics = np.sum(turned[:, None] * solved, axis=0)
        return self._largest(quadratics, logs - len(gram) * np.log(penalties))

    def _evidence_beside(self, line: WideLine, features: Float64, lowest: float) -> float:
        """Return the same of features (m, n) beside a line of many."""
        both = line.beside(features, self.targets)
        penalties = np.geomspace(lowest, HIGHEST * max(both.largest, lowest), PENALTIES)
        quadratics, logs = both.solve_and_measure(penalties)
        return self._largest(quadratics, logs - (len(features) + len(line.values)) * np.log(penalties))

    def _largest(self, quadratics: Float64, determinants: Float64) -> float:
        """Return the sum over targets of the largest evidence, from what fits explain (L, c) and determinants (L,)."""
        energy, n = np.sum(self.targets**2, axis=0), len(self.rows) - 1
        variances = np.maximum(energy - quadratics, np.maximum(np.finfo(float).eps * energy, LEAST)) / n
        evidence = -(n * np.log(2 * np.pi * variances) + determinants[:, None] + n) / 2
        return float(np.sum(np.max(evidence, axis=0)))

    @lazy
    def _wide(self) -> WideLine | None:
        """The line, where it has many features."""
        return None if self.line is None or len(self.line) < WIDE else wide_line(self.line, self.targets)

    def left_out(self, kernel: Kernel | None) -> float:
        """Return the sum over targets of the least squared error of a penalty on folds; infinity as of the evidence."""
        of, n = folds_of(self.rows), len(self.rows)
        if np.all(of == of[0]):  # rows alike in float32
            return np.inf
        try:
            features, gram = self._centred(kernel)
        except (KernattnError, np.linalg.LinAlgError):
            return np.inf
        size = float(np.vdot(features, features)) / n
        if not LEAST < size < np.inf:
            return np.inf
        penalties = np.geomspace(LOWEST * size, n * size, TRIED)
        if n < len(features):
            given, each = (features.T @ features, self.targets, np.ones(n)), np.unique(of)
            left_out = (LeftOutRows(*given, np.flatnonzero(of == fold), True) for fold in each)
            return float(np.sum(np.min(sum(fold.sum_errors(penalties) for fold in left_out), axis=0)))
        gram = features @ features.T if gram is None else gram
        cross = features @ self.targets
        errors = np.zeros((TRIED, self.targets.shape[1]))
        for fold in np.unique(of):
            left = of == fold
            out, y = np.take(features, np.flatnonzero(left), axis=1), self.targets[left]
            mean, level = -out.sum(axis=1) / (n - len(y)), -y.sum(axis=0) / (n - len(y))  # of the others
            inner = tridiagonal(gram - out @ out.T - (n - len(y)) * np.outer(mean, mean))
            turned = inner.turn(cross - out @ y - (n - len(y)) * np.outer(mean, level))
            weights = inner.turn(inner.solve(turned, penalties).reshape(len(turned), -1), back=True)
            fitted = ((out - mean[:, None]).T @ weights).reshape(len(y), TRIED, -1)
            errors += np.sum((fitted - (y - level)[:, None]) ** 2, axis=0)
        return float(np.sum(np.min(errors, axis=0)))

    def _centred(self, kernel: Kernel | None) -> tuple[Float64, Float64 | None]:
        """Return the features less their means, and their sums of products if known: those of the best are kept."""
        if self._best is not None and self._best[1] == kernel:
            return self._best[2:]
        features = self._features(kernel)
        features -= features.mean(axis=1, keepdims=True)
        return features, None

    def _features(self, kernel: Kernel | None) -> Float64:
        r"""Return :math:`L^{-1} k(l, x)`, :math:`k(l, l) = L L^T`, and the line's features, as rows (M, n)."""
        count = min(LANDMARKS, len(self.rows)) if kernel is not None else 0
        beside = np.empty((0, len(self.rows))) if self.line is None else self.line
        shape, features = (count + len(beside), len(self.rows)), self._room
        features = np.empty(shape) if features is None or features.shape != shape else features
        features[count:] = beside
        if kernel is not None:
            values = kernel(self.rows, self.rows[:count])
            inner = values[:count].copy()
            inner[np.diag_indices(count)] += NUGGET * float(np.trace(inner)) / count
            inverse, _ = linalg.lapack.dtrtri(linalg.cholesky(inner, lower=True), lower=1)
            np.matmul(inverse, values.T, out=features[:count])  # takes half the time of a solution
        return features
