"""Ridge regression on features: every ridge from one eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, constant, namespace
from kernattn._runtime.checks import boolean, one_of
from kernattn._runtime.lazy import lazy
from kernattn.errors import EmptyInputError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import (
    Spectrum,
    checked_lowest,
    checked_ridges,
    in_dtype_of,
    least,
    projections,
    spectrum,
)


class RidgePath(NamedTuple):
    """What every ridge gives; a last axis for targets (n, c), none for targets (n,).

    Attributes
    ----------
    ridge : (L,) numpy.ndarray
        The ridges.
    effective_dimension : (L,) numpy.ndarray
        Sum of s / (s + ridge) over the eigenvalues s.
    mse : (L, ...) numpy.ndarray
        Mean squared residual of the rows that were fitted.
    gcv : (L, ...) numpy.ndarray
        Generalised cross-validation's estimate of the mean squared error of new rows.
    log_evidence : (L, ...) numpy.ndarray
        Log density of the targets, at the variance of noise that makes it largest.
    """

    ridge: Float64
    effective_dimension: Float64
    mse: Float64
    gcv: Float64
    log_evidence: Float64


@final
@dataclass(frozen=True, eq=False, repr=False)
class Ridge:
    """A fit of ridge regression; what it is asked for beyond `predict` costs no second look at the data.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    ridge : (c,) numpy.ndarray
        The ridge of each target.
    """

    phi: FeatureMap
    ridge: Float64
    _spectrum: Spectrum
    _vector: bool

    def __repr__(self) -> str:
        """Return the map and the ridges."""
        return f"Ridge(ridge={self.ridge}, phi={self.phi!r})"

    def _shaped(self, values: Any) -> Any:
        return values[..., 0] if self._vector else values

    @lazy
    def _weights(self) -> Float64:
        return self._spectrum.weights(self.ridge)

    @property
    def weights(self) -> Float64:
        """Weights w of the features, (M,) or (M, c)."""
        return self._shaped(self._weights)  # type: ignore[no-any-return]

    @property
    def intercept(self) -> Float64:
        """Intercept b, () or (c,): 0 without one."""
        return self._shaped(self._spectrum.y_mean - self._spectrum.mean @ self._weights)  # type: ignore[no-any-return]

    @property
    def floor(self) -> float:
        """The least ridge whose answer is not noise: 4 times the rounding of the largest eigenvalue."""
        return self._spectrum.floor

    def at(self, ridge: float | Array) -> Ridge:
        """Return the fit of another ridge, a number or one for each target, from the same eigenvectors."""
        return _fit(self, checked_ridges(ridge, self._spectrum))

    def predict(self, x: Array, *, backend: str | None = None) -> Array:
        """Return predictions phi(x)^T w + b, (..., n) or (..., n, c) in the dtype of x.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        array
            The predictions.
        """
        shift = self._spectrum.mean @ self._weights - self._spectrum.y_mean
        values = projections(self.phi, x, self._weights, shift, backend)
        return self._shaped(in_dtype_of(values, x))

    def leverage(self, x: Array, *, backend: str | None = None) -> Array:
        r"""Return :math:`h(x) = \phi(x)^T (G + \lambda)^{-1} \phi(x)`, and 1 / n of the intercept: (..., n[, c]).

        Over the rows that were fitted, times their weights, it sums to the effective dimension, plus 1 if b was fitted.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        array
            The leverages, in the dtype of x.
        """
        found = self._spectrum
        turned = projections(self.phi, x, found.vectors, found.mean @ found.vectors, backend)
        xp = namespace(turned=turned)
        shrunk = constant(xp, 1 / (found.values[:, None] + self.ridge), turned.dtype, turned)
        values = xp.matmul(turned**2, shrunk) + found.share
        return self._shaped(in_dtype_of(values, x))

    def path(self, ridges: Array | None = None) -> RidgePath:
        """Return what every ridge gives; None takes 200 of them, from where rounding ends to where all is shrunk.

        Parameters
        ----------
        ridges : (L,) array, optional
            Ridges, none below `floor`.

        Returns
        -------
        RidgePath
            A row for each ridge.
        """
        found = self._spectrum
        values = found.grid() if ridges is None else checked_ridges(ridges, found, (1,))
        mse = found.residual(values) / found.count
        costs = (mse, _gcv(found, values), _log_evidence(found, values))
        return RidgePath(values, found.dimensions(values), *map(self._shaped, costs))

    @property
    def effective_dimension(self) -> Float64:
        """Sum of s / (s + ridge) over the eigenvalues s of G, () or (c,)."""
        return self._shaped(self._spectrum.dimensions(self.ridge))  # type: ignore[no-any-return]

    @property
    def gcv(self) -> Float64:
        """Generalised cross-validation's estimate of the mean squared error of new rows, () or (c,)."""
        return self._shaped(np.diagonal(_gcv(self._spectrum, self.ridge)))  # type: ignore[no-any-return]

    @property
    def log_evidence(self) -> Float64:
        """Log density of the targets, at the variance of noise that makes it largest, () or (c,)."""
        return self._shaped(np.diagonal(_log_evidence(self._spectrum, self.ridge)))  # type: ignore[no-any-return]


def ridge(
    m: Moments,
    ridge: float | Array | None = None,
    *,
    objective: str = "gcv",
    intercept: bool = True,
    lowest: float = 0.0,
) -> Ridge:
    r"""Fit ridge regression, :math:`w = \mathrm{argmin}\, \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    One eigendecomposition, O(M^3), gives every ridge in O(M): the fit, its effective dimension, generalised
    cross-validation (Golub, Heath & Wahba 1979) and the evidence of Bayesian regression. Of an intercept the penalty
    is none, and the evidence is of contrasts: of what it leaves free. With weighted rows the evidence lacks
    :math:`\frac{1}{2} \sum \log w_i`, which no ridge changes.

    Parameters
    ----------
    m : Moments
        Sums over the rows, with targets.
    ridge : float or (c,) array, optional
        The penalty lambda, on the sum over rows and not on their mean. None takes the best by `objective`, for each
        target its own.
    objective : {"gcv", "evidence"}
        What None makes best. Generalised cross-validation takes all rows for alike; where a few are far from the
        others, it can choose a ridge that fits these exactly and fails beside them. The evidence hardly does.
    intercept : bool
        Fit b too; else it is 0.
    lowest : float
        The least ridge that None may take, 0 or more; none is taken below the rounding of eigenvalues.

    Returns
    -------
    Ridge
        The fit.

    Raises
    ------
    DTypeError
        If m is not of moments.
    EmptyInputError
        If there are no rows, or no targets.
    ParameterError, ShapeError
        If a ridge is below the floor, which is 4 times the rounding of the largest eigenvalue, or of another shape; or
        if objective is no such name, or lowest is negative.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=1, num_features=64, rng=0)
    >>> fit = ka.solvers.ridge(ka.solvers.moments(phi, x, y))
    >>> round(float(fit.gcv) ** 0.5, 2)
    0.1
    >>> bool(abs(fit.predict(np.array([[0.5]]))[0] - np.sin(1.5)) < 0.03)
    True
    """
    low = checked_lowest(lowest)
    cost = OBJECTIVES[one_of("objective", objective, tuple(OBJECTIVES))]
    found = spectrum(m, boolean("intercept", intercept))
    if not len(m.y_sum):
        raise EmptyInputError("moments must hold targets; they were made without y")
    begun = Ridge(m.phi, np.full(len(m.y_sum), found.floor), found, m.vector)
    if ridge is not None:
        return begun.at(ridge)
    return _fit(begun, least(lambda ridges: cost(found, ridges), max(found.lowest, low), max(found.ceiling, low)))


def _fit(fit: Ridge, ridges: Float64) -> Ridge:
    if ridges.ndim and ridges.shape != fit.ridge.shape:
        raise ShapeError(f"ridge must be one number or one for each of {len(fit.ridge)} targets; got {ridges.shape}")
    each = np.array(np.broadcast_to(ridges, fit.ridge.shape))
    return Ridge(fit.phi, each, fit._spectrum, fit._vector)


def _gcv(found: Spectrum, ridges: Float64) -> Float64:
    """Return n |y - H y|^2 / (n - tr H)^2, (L, c)."""
    left = np.maximum(found.rows - found.dimensions(ridges), np.finfo(float).eps * found.rows)
    with np.errstate(over="ignore"):  # targets near the largest numbers: no ridge that gives infinity is the best
        score: Float64 = found.count * found.residual(ridges) / left[:, None] ** 2
    return score


def _log_evidence(found: Spectrum, ridges: Float64) -> Float64:
    """Return the log density of y ~ N(0, v (I + Phi Phi^T / lambda)) at the best v, (L, c)."""
    noise = found.quadratic(ridges) / found.rows
    twice: Float64 = -(found.rows * (np.log(2 * np.pi * noise) + 1) + found.log_determinant(ridges)[:, None])
    return twice / 2


OBJECTIVES: dict[str, Callable[[Spectrum, Float64], Float64]] = {
    "gcv": _gcv,
    "evidence": lambda found, ridges: -_log_evidence(found, ridges),
}
