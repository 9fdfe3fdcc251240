"""Gaussian processes on features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from kernattn._arrays.namespaces import like, namespace
from kernattn.sklearn._inputs import check_targets
from kernattn.sklearn._on_moments import OnMoments, lowest_ridge
from kernattn.solvers import GaussianProcess, Moments, gp


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureGP(MultiOutputMixin, RegressorMixin, OnMoments):
    r"""A Gaussian process on features, :math:`y = \mu + f(x) + \epsilon` with f of covariance
    :math:`a^2 \phi(x)^T \phi(y)`.

    It is `kernattn.solvers.gp` of the moments of the rows, so rows can come in parts, and memory does not depend on
    their number. A weight counts a row that many times. Far from all rows, the variance of random features is too
    small; that of a Nystrom map (``estimator="rpcholesky"``) goes back to the prior's.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `RandomFeatures` takes them.
    noise : float, (c,) array_like or None
        Standard deviation of :math:`\epsilon`, in units of y. None takes what makes the evidence largest.
    amplitude : float, (c,) array_like or None
        Standard deviation a of f, where k(x, x) = 1. None takes what makes the evidence largest.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.
    y_mean_ : numpy.ndarray
        The prior's mean :math:`\mu`: of the targets that `fit`, or the first `partial_fit`, was given.
    moments_ : Moments
        Sums over the rows, of targets less that mean.
    solution_ : kernattn.solvers.GaussianProcess
        The posterior, with its scales, its evidence and the variance of f.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureGP
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> process = FeatureGP(lengthscale=0.5, num_features=64, random_state=0).fit(x, y)
    >>> mean, std = process.predict(np.array([[0.5]]), return_std=True)
    >>> np.abs(mean - np.sin(1.5)) < 3 * std, std.round(1)
    (array([ True]), array([0.1]))
    """

    noise: Any = None
    amplitude: Any = None
    _min_rows: ClassVar[int] = 1

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return means of new targets at rows X (n, d), and on request standard deviations, noise included."""
        x = self._check_new(X)
        process: GaussianProcess = self.solution_
        mean = process.mean(x)
        mean = mean + like(self.y_mean_, mean)
        if not return_std:
            return mean
        variance = process.variance(x)
        noise = process.noise**2 if variance.ndim == 2 else process.noise[0] ** 2
        return mean, namespace(x=x).sqrt(variance + like(noise, variance))

    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        x, y, weights = check_targets(self, x, y, sample_weight, reset=first, **options)
        mean = np.average(y, axis=0, weights=weights) if first else self.y_mean_
        self._add(x, y - mean, weights, first)
        self.y_mean_: Any = mean

    def _solve(self, m: Moments) -> GaussianProcess:
        return gp(m, noise=self.noise, amplitude=self.amplitude, lowest=lowest_ridge(m))
