"""Regression of many targets on few columns, by kernels of which the evidence takes one for each target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, constant, namespace
from kernattn._arrays.shapes import strips
from kernattn._runtime.lazy_scipy import special

BLOCK = 1 << 20  # features that are held at once
RANK = 1e-8  # of the largest eigenvalue of a kernel matrix or a covariance: the others are none
LOOKED_AT = 2048  # rows at which gradients are taken, and z is chosen
PENALTIES = np.geomspace(1e-5, 1e4, 37)


class Smoother(ABC):
    """Orthonormal columns of rows z (b, n, d): features of landmarks, and z, turned to principal components."""

    z: Array
    marks: Array
    basis: Array  # weights of the columns (b, p + d, r)
    values: Array  # eigenvalues (b, r)
    mean: Array  # of the features (b, p + d)

    @abstractmethod
    def _features(self, z: Array) -> Array:
        """Return k (b, n, p) of rows with the landmarks."""

    def _decompose(self, whitening: Array) -> tuple[Array, Array, Array]:
        """Return the columns' weights (b, p + d, r), eigenvalues (b, r) and the features' mean (b, p + d)."""
        z, n = self.z, self.z.shape[1]
        xp = namespace(z=z)
        total, gram = 0.0, 0.0
        for _, rows in self.blocks():
            total, gram = total + xp.sum(rows, axis=1), gram + transpose(rows) @ rows
        mean = total / n
        gram = gram - n * mean[:, :, None] * mean[:, None, :]
        p = whitening.shape[1]
        left, right = transpose(whitening) @ gram[:, :p], gram[:, p:]
        whole = xp.concat([left, right], axis=1)  # of whitened features, and z
        whole = xp.concat([whole[:, :, :p] @ whitening, whole[:, :, p:]], axis=2)
        values, vectors = _inverse_roots(whole)
        return xp.concat([whitening @ vectors[:, :p], vectors[:, p:]], axis=1), values, mean

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield features (b, rows, p + d), a block of rows at a time."""
        batch, n, dim = self.z.shape
        for here in strips(n, BLOCK // (batch * (self.marks.shape[-2] * self.marks.shape[-1] + dim))):
            z = self.z[:, here, :]
            yield here, namespace(z=z).concat([self._features(z), z], axis=2)

    def coordinates(self, y: Array) -> Array:
        """Return coordinates (b, r, c) of targets (b, n, c) of mean 0 along the columns."""
        cross: Any = sum(transpose(rows) @ y[:, here, :] for here, rows in self.blocks())
        return transpose(self.basis) @ cross

    def evaluate(self, coefficients: Array) -> Array:
        """Return the functions (b, n, c) of coefficients (b, r, c)."""
        weights = self.basis @ coefficients
        parts = [rows @ weights - self.mean[:, None, :] @ weights for _, rows in self.blocks()]
        return namespace(weights=weights).concat(parts, axis=1)


class JointSmoother(Smoother):
    r"""The smoother of :math:`k(Rz, Rz') + z^T z'`, with a Gaussian k and a symmetric R (b, d, d) or none."""

    def __init__(self, z: Array, marks: Array, scale: float, root: Array | None = None) -> None:
        self.z, self.scale, self.root = z, scale, root
        self.marks = marks if root is None else marks @ root
        self.basis, self.values, self.mean = self._decompose(inverse_root(gaussian(self.marks, self.marks, scale)))

    def _features(self, z: Array) -> Array:
        return gaussian(z if self.root is None else z @ self.root, self.marks, self.scale)

    def where(self, mine: Array, other: JointSmoother) -> JointSmoother:
        """Return the smoother that is this one in the tests `mine` (b,), and another of the same kernel elsewhere."""
        mixed, xp = copy(self), namespace(mine=mine)
        for name in ("z", "marks", "basis", "values", "mean"):
            one = getattr(self, name)
            setattr(mixed, name, xp.where(xp.reshape(mine, (-1, *[1] * (one.ndim - 1))), one, getattr(other, name)))
        return mixed

    def slopes(self, coefficients: Array) -> Array:
        """Return the sum of outer products (b, d, d) of the functions' gradients, at some of the rows."""
        z, weights = self.z[:, :: -(-self.z.shape[1] // LOOKED_AT), :], self.basis @ coefficients
        near = z if self.root is None else z @ self.root
        kernel, p, total = self._features(z), self.marks.shape[1], 0.0
        for c in range(weights.shape[2]):
            part = kernel * weights[:, None, :p, c]
            slope = (part @ self.marks - namespace(z=z).sum(part, axis=2)[:, :, None] * near) / self.scale**2
            slope = (slope if self.root is None else slope @ self.root) + weights[:, None, p:, c]
            total = total + transpose(slope) @ slope
        return total


class AdditiveSmoother(Smoother):
    r"""The smoother of a sum of kernels, one for each column, with quantiles of a normal as landmarks.

    They are Gaussian or, for functions with jumps, :math:`e^{-|z - z'| / s}`.
    """

    def __init__(self, z: Array, count: int, scale: float, jumps: bool = False) -> None:
        xp, dim = namespace(z=z), z.shape[2]
        self.z, self.scale, self.jumps = z, scale, jumps
        places = special.ndtri((np.arange(count) + 0.5) / count)
        self.marks = constant(xp, places, z.dtype, z)[None, :, None]
        between = self._kernel(self.marks - xp.matrix_transpose(self.marks))
        small = inverse_root(between)[0, ...] / dim**0.5
        eye = constant(xp, np.eye(dim), z.dtype, z)
        whole = xp.reshape(eye[:, None, :, None] * small[:, None, :], (1, dim * count, dim * count))
        whitening = xp.concat([whole] * z.shape[0], axis=0)
        self.basis, self.values, self.mean = self._decompose(whitening)

    def _features(self, z: Array) -> Array:
        places = self.marks[0, :, 0]
        kernel = self._kernel(z[..., None] - places)
        return namespace(z=z).reshape(kernel, (*z.shape[:2], z.shape[2] * places.shape[0]))

    def _kernel(self, difference: Array) -> Array:
        xp, part = namespace(difference=difference), difference / self.scale
        return xp.exp(-xp.abs(part) if self.jumps else part**2 / -2)


class Smoothed(NamedTuple):
    """Residuals (b, n, c), how many parameters each target took (b, c), coefficients (b, r, c) by smoother, and costs.

    A cost (b, c) is minus twice the log evidence per row, up to a constant.
    """

    residuals: Array
    parameters: Array
    coefficients: list[Array]
    costs: Array


def smooth(smoothers: Sequence[Smoother], along: Sequence[Array], y: Array) -> Smoothed:
    """Fit targets (b, n, c) of mean 0, each by the smoother and the penalty of the largest evidence.

    `along` are their coordinates, by smoother.
    """
    xp, n = namespace(y=y), y.shape[1]
    penalties = constant(xp, PENALTIES, y.dtype, y)
    energy = xp.sum(y**2, axis=1)[:, None, :]
    costs = []
    for each, c in zip(smoothers, along, strict=True):
        left = penalties[:, None] / (each.values[:, None, :] + penalties[:, None])  # (b, L, r)
        rest = xp.clip(energy + (left - 1) @ c**2, min=1e-300)
        costs.append(xp.log(xp.maximum(rest, 1e-12 * energy)) - xp.sum(xp.log(left), axis=2)[:, :, None] / n)
    every = xp.concat(costs, axis=1)
    best = xp.argmin(every, axis=1)  # (b, c)
    chosen = xp.reshape(xp.take(penalties, xp.reshape(best % len(PENALTIES), (-1,)), axis=0), best.shape)
    residuals, parameters, coefficients = y, 1 + 0 * chosen, []
    for i, (each, c) in enumerate(zip(smoothers, along, strict=True)):
        mine = xp.astype(best // len(PENALTIES) == i, y.dtype)
        share = each.values[..., None] / (each.values[..., None] + chosen[:, None, :]) * mine[:, None, :]
        coefficients.append(share * c)
        if bool(xp.any(mine > 0)):
            residuals = residuals - each.evaluate(coefficients[-1])
            parameters = parameters + xp.sum(share, axis=1)
    return Smoothed(residuals, parameters, coefficients, xp.min(every, axis=1))


def gaussian(a: Array, b: Array, scale: float) -> Array:
    """Return exp(-|a - b|^2 / (2 scale^2)) of all pairs of rows, (b, n, p)."""
    xp = namespace(a=a)
    near, far = (xp.sum(rows**2, axis=2, keepdims=True) / (-2 * scale**2) for rows in (a, b))
    left = xp.concat([a / scale**2, near, xp.ones_like(near)], axis=2)
    return xp.exp(left @ transpose(xp.concat([b, xp.ones_like(far), far], axis=2)))


def inverse_root(matrix: Array) -> Array:
    """Return V s^(-1/2) of matrices V s V^T, with 0 for eigenvalues that are rounding."""
    return _inverse_roots(matrix)[1]


def _inverse_roots(matrix: Array) -> tuple[Array, Array]:
    """Return s, 0 where it is rounding, and V s^(-1/2) of matrices V s V^T."""
    xp = namespace(matrix=matrix)
    values, vectors = xp.linalg.eigh(matrix)
    kept = values > RANK * values[:, -1:]
    ones = xp.ones_like(values)
    roots = xp.where(kept, xp.where(kept, values, ones) ** -0.5, 0 * ones)
    return xp.where(kept, values, 0 * ones), vectors * roots[:, None, :]


def transpose(matrix: Array) -> Array:
    """Return matrices with rows and columns exchanged."""
    return namespace(matrix=matrix).matrix_transpose(matrix)
