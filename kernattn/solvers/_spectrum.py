r"""Least squares in the eigenvectors of G, where every ridge costs O(M): :math:`G = U \mathrm{diag}(s) U^T`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, Float64, accumulation_dtype, constant, namespace, widest
from kernattn._check import instance_of, shown
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._moments import Moments

__all__ = ["Spectrum", "checked_ridges", "least", "projections", "spectrum"]

ROUNDING = 4.0  # times the epsilon of the products and the largest eigenvalue: a ridge below that means nothing
BLOCK = 1 << 22  # features that are held at once
HIGHEST = 1e3  # times the largest eigenvalue: the largest ridge that is looked at


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The quadratic :math:`|y - \Phi w|^2 = y^T y - 2 w^T B + w^T G w` of c targets, as sums over eigenvectors."""

    values: Float64  # s (M,), descending, none below 0
    vectors: Float64  # U (M, M)
    coordinates: Float64  # U^T B (M, c)
    energy: Float64  # y^T y (c,)
    count: int  # n
    share: float  # one over the sum of weights where means were taken off, else 0
    mean: Float64  # (M,), of features, or 0
    y_mean: Float64  # (c,)
    floor: float

    @property
    def rows(self) -> int:
        """n, less one where means were taken off."""
        return self.count - (self.share > 0)

    def dimensions(self, ridges: Float64) -> Float64:
        """Return the effective dimensions (L,): the sum of s / (s + lambda)."""
        found: Float64 = np.sum(self.values / (self.values + ridges[:, None]), axis=1)
        return found

    def quadratic(self, ridges: Float64) -> Float64:
        r"""Return :math:`y^T (I + \Phi \Phi^T / \lambda)^{-1} y` (L, c), the least of the penalised sums of squares."""
        return self._held(self.energy - (1 / (self.values + ridges[:, None])) @ self.coordinates**2)

    def residual(self, ridges: Float64) -> Float64:
        """Return the sums of squared residuals (L, c)."""
        at = ridges[:, None]
        return self._held(self.energy - ((self.values + 2 * at) / (self.values + at) ** 2) @ self.coordinates**2)

    def _held(self, sums: Float64) -> Float64:
        """Return sums of squares, which rounding must not make 0 or less."""
        return np.maximum(sums, np.finfo(float).eps * np.maximum(self.energy, np.finfo(float).tiny))

    def log_determinant(self, ridges: Float64) -> Float64:
        r"""Return :math:`\log|I + \Phi \Phi^T / \lambda|` (L,)."""
        found: Float64 = np.sum(np.log1p(self.values / ridges[:, None]), axis=1)
        return found

    def weights(self, ridges: Float64) -> Float64:
        """Return w (M, c), a ridge for each target."""
        return self.vectors @ (self.coordinates / (self.values[:, None] + ridges))

    @property
    def lowest(self) -> float:
        """The least ridge that is looked at: what rounding makes of eigenvalues of 0 is well below."""
        return max(self.floor, ROUNDING * len(self.values) * float(np.finfo(float).eps) * float(self.values[0]))

    @property
    def ceiling(self) -> float:
        """The largest ridge that is looked at."""
        return HIGHEST * max(float(self.values[0]), self.lowest)

    def grid(self, count: int = 200) -> Float64:
        """Return ridges from the lowest up to where all is shrunk."""
        return np.geomspace(self.lowest, self.ceiling, count)


def spectrum(m: Moments, centred: bool) -> Spectrum:
    """Return the eigenvalues and vectors of G, of features and targets less their means if asked for."""
    instance_of("m", m, Moments)
    if m.n < 1 + centred:
        raise EmptyInputError(f"moments must hold {1 + centred} rows at least; got {m.n}")
    share = centred / m.weight
    gram = m.gram - share * np.outer(m.s, m.s)
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])
    if not values[0] > 0:
        raise ParameterError(f"features must not be the same in all rows; G is 0{' about its mean' * centred}")
    cross = m.cross - share * np.outer(m.s, m.y_sum)
    energy = np.maximum(np.diagonal(m.y_gram) - share * m.y_sum**2, 0.0)
    largest = float(np.max(np.diagonal(m.gram))) if centred else 0.0  # what was taken off has rounded too
    floor = ROUNDING * float(np.finfo(m.products).eps) * max(values[0], largest)
    return Spectrum(values, vectors, vectors.T @ cross, energy, m.n, share, share * m.s, share * m.y_sum, floor)


def checked_ridges(ridges: object, found: Spectrum, dimensions: tuple[int, ...] = (0, 1)) -> Float64:
    """Return ridges as numbers, none below the floor."""
    try:
        values = np.asarray(ridges, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"ridge must be numbers; got {shown(ridges)}") from None
    if values.ndim not in dimensions or values.size == 0:
        raise ShapeError(f"ridge must have {' or '.join(map(str, dimensions))} axes, none empty; got {values.shape}")
    if not (np.isfinite(values).all() and np.min(values) >= found.floor):
        raise ParameterError(
            f"ridge must be finite and {found.floor:.3g} or more, {ROUNDING:g} times the rounding of the largest "
            f"eigenvalue, below which the answer is noise; got {shown(ridges)}"
        )
    return values


def least(cost: Callable[[Float64], Float64], low: float, high: float) -> Float64:
    """Return where cost (L,) -> (L, c) is least (c,), on a grid that is refined about the least of it."""
    grid = np.geomspace(low, high, 200)
    best = np.argmin(cost(grid), axis=0)
    found = np.empty(best.shape)
    for i, at in enumerate(best):
        finer, at = grid, int(at)
        for _ in range(4):
            finer = np.geomspace(float(finer[max(at - 1, 0)]), float(finer[min(at + 1, len(finer) - 1)]), 17)
            at = int(np.argmin(cost(finer)[:, i]))
        found[i] = finer[at]
    return found


def projections(phi: FeatureMap, x: Array, matrix: Float64, shift: Float64, backend: str | None) -> Array:
    """Return phi(x) matrix - shift, (..., n, k), in the widest dtype, a block of rows at a time."""
    phi._check(x)
    xp, dtype = namespace(x=x), widest(namespace(x=x), x)
    right, less = (constant(xp, a, dtype, x) for a in (matrix, shift))
    own = accumulation_dtype(xp, x)
    *lead, n, _ = x.shape
    step = max(1, BLOCK // (len(matrix) * max(1, int(np.prod(lead)))))
    blocks = (xp.astype(x[..., i : min(i + step, n), :], own, copy=False) for i in range(0, n, step))
    parts = [xp.matmul(xp.astype(phi(b, backend=backend), dtype, copy=False), right) - less for b in blocks]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-2)
