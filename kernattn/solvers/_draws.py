"""Functions drawn from the posterior of a Gaussian process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import ceil
from operator import add, mul
from typing import Any, NamedTuple, final

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    constant,
    frozen,
    namespace,
    to_numpy64,
    without_flags,
)
from kernattn._arrays.plain import quiet
from kernattn._arrays.shapes import strips
from kernattn._gradients import vjp
from kernattn._gradients.recorded import like
from kernattn._runtime.checks import instance_of, positive_integer, shown
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features import FeatureMap, Nystrom, random_features
from kernattn.features._spectral.spectra import has_spectrum, is_by_axes, is_convolution
from kernattn.kernels import Kernel, Product, Scaled, Sum
from kernattn.kernels._pullbacks import pull
from kernattn.solvers._check import check_map_takes, widen
from kernattn.solvers._exact import solve_on_rows
from kernattn.solvers._posterior import Posterior
from kernattn.solvers._rows import check_and_copy
from kernattn.solvers._spectrum import BLOCK, cast_as, project

FEATURES = 2048  # of a prior that is not given
MODERATE = 1e-30, 1e30  # weights whose products float32 can sum


class DrawsGradients(NamedTuple):
    """Of functions that were drawn."""

    x: Array


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class Draws:
    r"""Functions f of a Gaussian process, as `GaussianProcess.draw` makes them: arrays that are called.

    :math:`f(x) = \psi(x)^T v + \phi(x)^T w + \sum_i k(x, x_i) u_i`: a function of the prior and its update, by the
    process's features or at the data. Rows (..., n, d) of any array library give (..., n, count), or (..., n, c, count)
    of c targets, in the dtype of the rows: the values of the same functions at every call. PyTorch and JAX
    differentiate them by x, and `kernattn.vjp` gives the pullback.

    Attributes
    ----------
    count : int
        Number of functions.
    prior : FeatureMap or None
        The features psi of the prior; None where the process's own are all of it.
    """

    count: int
    prior: FeatureMap | None
    _phi: FeatureMap | None
    _kernel: Kernel | None
    _points: Float64 | None  # (n, d)
    _of_prior: Float64  # v (P, c count)
    _weights: Float64  # w (M, c count) of the features, or u (n, c count) of the data
    _vector: bool

    def __repr__(self) -> str:
        """Return how many functions there are, and of what."""
        update = f"{len(self._weights)} features" if self._phi is not None else f"{len(self._weights)} rows"
        return f"Draws(count={self.count}, update of {update}, prior={self.prior!r})"

    @outside_graphs
    def __call__(self, x: Array) -> Array:
        """Return f(x) of rows (..., n, d), (..., n, count) or (..., n, c, count), in the dtype of x."""
        taken = self._phi if self._phi is not None else self.prior
        assert taken is not None
        check_map_takes(taken, x)
        *lead, n, _ = x.shape
        columns = self._weights.shape[1]
        size = BLOCK // max(1, columns, len(self._of_prior), len(self._weights)) // max(1, int(np.prod(lead)))
        parts = [self._shape(self._values(x[..., here, :])) for here in strips(n, size)]
        if len(parts) == 1:
            return parts[0]
        return namespace(x=parts[0]).concat(parts, axis=-2 if self._vector else -3)

    def _shape(self, values: Array) -> Array:
        """Return values (..., n, c count) with an axis of targets, where they came as (n, c)."""
        if self._vector:
            return values
        return namespace(values=values).reshape(values, (*values.shape[:-1], -1, self.count))

    def _values(self, x: Array) -> Array:
        """Return f(x), (..., n, c count)."""
        wide = widen(x)
        update = self._at_points(wide) if self._phi is None else self._of_features(self._phi, wide, x)
        if self.prior is None:
            return cast_as(update, x)
        xp = namespace(x=x)  # weights are near 1: float32 rounds their sums as it does functions
        rows = xp.astype(x, accumulation_dtype(xp, x), copy=False) if self._moderate else wide
        function = _product(self.prior(rows), self._of_prior)
        return cast_as(function + cast_as(update, function), x)

    def _at_points(self, wide: Array) -> Array:
        """Return sum_i k(x, x_i) u_i."""
        assert self._kernel is not None
        assert self._points is not None
        xp = namespace(x=wide)
        points, weights = (constant(xp, a, wide.dtype, wide) for a in (self._points, self._weights))
        sums = self._kernel.matmul(xp.reshape(wide, (-1, wide.shape[-1])), points, weights)
        return xp.reshape(sums, (*wide.shape[:-1], -1))

    @property
    def _moderate(self) -> bool:
        """Whether float32 is enough for sums of the weights of a prior and its update."""
        low, high = MODERATE
        sizes = [float(np.max(np.abs(weights))) for weights in (self._of_prior, self._weights)]
        return low < min(sizes) and max(sizes) < high

    def _of_features(self, phi: FeatureMap, wide: Array, x: Array) -> Array:
        """Return phi(x)^T w; beside features of a prior weights are near 1, and float32 is enough for their sums."""
        features = phi(wide)
        near = self.prior is not None and self._moderate
        if near and isinstance(features, np.ndarray) and isinstance(x, np.ndarray):
            features = features.astype(accumulation_dtype(np, x), copy=False)
        return _product(features, self._weights)

    def _vjp(self, x: Array) -> tuple[Array, Callable[[Any], DrawsGradients]]:
        """Return the values and their pullback."""
        out, xp = self(x), namespace(x=x)

        def pullback(cotangent: Any) -> DrawsGradients:
            g = xp.reshape(like("the cotangent", cotangent, out), (-1, self._weights.shape[1]))
            rows = xp.reshape(x, (-1, x.shape[-1]))
            size = BLOCK // max(self._weights.shape)
            parts = [self._pull_back(rows[here, :], g[here, :]) for here in strips(rows.shape[0], size)]
            dx = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
            return DrawsGradients(xp.reshape(dx, tuple(x.shape)))

        return out, pullback

    @without_flags
    def _pull_back(self, x: Array, g: Array) -> Array:
        """Return the cotangents of rows x (n, d) from those of values (n, c count)."""
        wide = widen(x)
        xp = namespace(x=wide)
        g = cast_as(g, wide)
        total = 0.0
        for phi, weights in ((self.prior, self._of_prior), (self._phi, self._weights)):
            if phi is not None:
                _, pullback = vjp(phi, wide)
                turned = constant(xp, np.ascontiguousarray(weights.T), wide.dtype, wide)
                total = total + pullback(xp.matmul(g, turned)).x
        if self._kernel is not None:
            assert self._points is not None
            points, turned = (constant(xp, a, wide.dtype, wide) for a in (self._points, self._weights.T))
            total = total + pull(self._kernel, wide, points, xp.matmul(g, turned))[0]
        return cast_as(total, x)


def _product(features: Array, weights: Float64) -> Array:
    xp = namespace(features=features)
    return xp.matmul(features, constant(xp, weights, features.dtype, features))


@without_flags
def draw(process: Posterior, count: int, prior: FeatureMap | None, data: tuple[Array, Array] | None, rng: RNG) -> Draws:
    """Return functions of the posterior."""
    positive_integer("count", count)
    source, phi = generator(rng), process.phi
    kernel = getattr(phi, "kernel", None)
    if isinstance(phi, Nystrom) and kernel is None:
        raise NoClosedForm("a map of a precomputed kernel has no functions of rows: make it of the kernel itself")
    if prior is not None:
        instance_of("prior", prior, FeatureMap)
        if None not in (prior.dim, phi.dim) and prior.dim != phi.dim:
            raise ParameterError(f"prior must be a map of rows of d = {phi.dim}; got {shown(prior)}")
    if data is not None:
        return _at_the_data(process, count, prior, data, source)
    if not isinstance(phi, Nystrom):
        if prior is not None:
            raise ParameterError(
                "prior is for a process on landmarks, or for data=(x, y): features of other maps are their prior"
            )
        nothing = np.zeros((0, len(process.noise) * count))
        return Draws(count, None, phi, None, None, nothing, _weights(process, count, source), process._vector)
    assert kernel is not None
    assert phi.landmarks is not None
    psi = _features(kernel, phi.dim, FEATURES, source) if prior is None else prior
    v = _of_prior(process, psi.num_features_of(phi.dim), count, source)
    root, log = phi._root("float64")
    weights = _weights(process, count, source) - (np.exp(log) * root).T @ (psi(phi.landmarks) @ v)
    return Draws(count, psi, phi, None, None, frozen(v), frozen(weights), process._vector)


def sample(process: Posterior, x: Array, count: int, rng: RNG, backend: str | None) -> Array:
    """Return values of functions of the posterior at rows x (..., n, d): of features, and of what they lack."""
    positive_integer("count", count)
    kernel, source = process._kernel_beside(), generator(rng)
    weights = _weights(process, count, source)
    values = project(process.phi, x, weights, np.zeros(weights.shape[1]), backend)
    if kernel is not None:
        xp = namespace(values=values)
        features = process.phi(widen(x), backend=backend)
        lacking = process._lacking(kernel, x, None, xp.matmul(features, xp.matrix_transpose(features)))
        squares, vectors = np.linalg.eigh(to_numpy64(lacking))
        root = vectors * np.sqrt(np.maximum(squares, 0.0))[..., None, :]
        normal = source.standard_normal((*root.shape[:-1], len(process.amplitude), count))
        normal = (process.amplitude[:, None] * normal).reshape(*root.shape[:-1], -1)
        values = values + constant(xp, root @ normal, values.dtype, values)
    if not process._vector:
        values = namespace(values=values).reshape(values, (*values.shape[:-1], -1, count))
    return cast_as(values, x)


def _weights(process: Posterior, count: int, rng: np.random.Generator) -> Float64:
    """Return draws of the features' weights, N(w, noise^2 (G + lambda)^-1), (M, c count)."""
    spectrum, at = process._spectrum, process._penalties
    normal = rng.standard_normal((len(spectrum.values), len(at), count))
    scaled = process.noise / np.sqrt(spectrum.values[:, None] + at)
    inner = (spectrum.coordinates / (spectrum.values[:, None] + at))[..., None] + scaled[..., None] * normal
    return spectrum.basis.combine(inner.reshape(len(inner), -1))


def _features(kernel: Kernel, dim: int, number: int, rng: np.random.Generator) -> FeatureMap:
    """Return random features of a kernel for functions of the prior, each member with the projection that it takes."""
    if isinstance(kernel, Scaled):
        return kernel.factor * _features(kernel.kernel, dim, number, rng)
    if isinstance(kernel, Sum | Product) and not is_convolution(kernel):
        count, by = len(kernel.kernels), add if isinstance(kernel, Sum) else mul
        share = 2 * ceil((number / count if by is add else number ** (1 / count)) / 2)
        return reduce(by, (_features(member, dim, share, rng) for member in kernel.kernels))
    if not has_spectrum(kernel):
        return random_features(kernel, dim, number, rng=rng)
    projection = "iid" if is_by_axes(kernel) else "sobol"
    return random_features(kernel, dim, number, "trigonometric", projection, rng=rng)


def _of_prior(process: Posterior, features: int, count: int, rng: np.random.Generator) -> Float64:
    """Return weights of functions of the prior, (P, c count)."""
    normal = rng.standard_normal((features, len(process.amplitude), count))
    values: Float64 = (process.amplitude[:, None] * normal).reshape(features, -1)
    return values


def _at_the_data(
    process: Posterior, count: int, prior: FeatureMap | None, data: Any, rng: np.random.Generator
) -> Draws:
    r"""Return functions of the exact process: :math:`f + k(., X) (K + \lambda)^{-1} (y - f(X) - \epsilon)`."""
    kernel = getattr(process.phi, "kernel", None)
    if not isinstance(kernel, Kernel):
        raise ParameterError(f"phi must be a map of a kernel where data is given; got {shown(process.phi)}")
    if not isinstance(data, tuple) or len(data) != 2:
        raise ParameterError(f"data must be a pair (x, y), the rows and targets; got {shown(data)}")
    check_map_takes(process.phi, data[0])
    rows, targets = check_and_copy(*data)
    c = len(process.noise)
    if (data[1].ndim == 1) != process._vector or targets.shape[1] != c:
        wanted = f"({len(rows)},)" if process._vector else f"({len(rows)}, {c})"
        raise ShapeError(f"y of data must be {wanted}, as the targets of the process; got {tuple(data[1].shape)}")
    psi = _features(kernel, rows.shape[1], FEATURES, rng) if prior is None else prior
    v = _of_prior(process, psi.num_features_of(rows.shape[1]), count, rng)
    left = targets[:, :, None] - (psi(rows) @ v).reshape(len(rows), c, count)
    left = left - process.noise[:, None] * rng.standard_normal(left.shape)
    solved = [solve_on_rows(rows, left[:, i], kernel, float(at), rng) for i, at in enumerate(process._penalties)]
    weights = np.stack(solved, axis=1).reshape(len(rows), -1)
    return Draws(count, psi, None, kernel, frozen(rows), frozen(v), frozen(weights), process._vector)
