"""Gaussian processes on features."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from kernattn._arrays.namespaces import Array, Float64, like, namespace
from kernattn._runtime.checks import boolean
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.sklearn._drawn import draw_by_evidence
from kernattn.sklearn._inputs import array_beside, check_targets, lowest_ridge
from kernattn.sklearn._on_moments import OnMoments
from kernattn.solvers import GaussianProcess, Interval, Moments, calibrate, gp
from kernattn.solvers._check import widen
from kernattn.solvers._gp import check_scale
from kernattn.solvers._moments import reweigh
from kernattn.solvers._spectrum import cast_as
from kernattn.solvers._sums import average


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureGP(MultiOutputMixin, RegressorMixin, OnMoments):
    r"""A Gaussian process on features, :math:`y = \mu + f(x) + \epsilon` with f of covariance
    :math:`a^2 \phi(x)^T \phi(y)`.

    It is `kernattn.solvers.gp` of the moments of the rows, so rows can come in parts, and memory does not depend on
    their number. A weight counts a row that many times; weights whose sum is below the number of rows are shares, and
    noise is that of a row of the mean weight. Of random features the variance of f is too small, near the rows and far
    from them: where rows come in parts, ``estimator="rpcholesky"`` takes landmarks of the first part.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `FeatureRidge` takes them. A lengthscale of "tune" has the largest evidence of
        2,048 of the first rows and of 256 features, "ard" one for each column; None is "tune" for a kernel by name.
    noise : float, (c,) array_like or None
        Standard deviation of :math:`\epsilon`, in units of y. None takes what makes the evidence largest, for which
        targets must vary.
    amplitude : float, (c,) array_like or None
        Standard deviation a of f, where k(x, x) = 1. None takes what makes the evidence largest.
    linear : bool
        Whether f is the sum of a line, of columns in units of their deviations, and of a function of the kernel, of one
        amplitude. Far from all rows means go on as the line, and variances grow with the square of the distance.
    metric : {None, "learned"}
        In which metric rows are, as `FeatureRidge` takes it. A metric has read the targets, so the evidence, and a
        noise that it chooses, are of a process that is told more than it says.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt.
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

    estimator: Any = None
    noise: Any = None
    amplitude: Any = None
    linear: bool = False
    metric: str | None = None
    _min_rows: ClassVar[int] = 1

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return means of new targets at rows X (n, d), and on request standard deviations, noise included."""
        with_std = boolean("return_std", return_std)
        x = self._check_new(X)
        process: GaussianProcess = self.solution_
        mean = cast_as(self._wide_mean(process, x), x)
        return (mean, cast_as(deviation(process, x), x)) if with_std else mean

    def predict_interval(self, X: Any, X_train: Any, y_train: Any, coverage: float = 0.9) -> Any:
        """Return intervals (low, high) of new targets at rows X (m, d), by `kernattn.solvers.calibrate`.

        `X_train` (n, d) and `y_train` (n,) or (n, c) are the rows and targets that were fitted, all of them and without
        weights: the estimator does not keep them.
        """
        new = self._check_new(X)
        x, y, _ = check_targets(self, X_train, y_train, None, reset=False)
        process = calibrate(self.solution_, x=x, y=array_beside(x, y - self.y_mean_), coverage=coverage)
        half = NormalDist().inv_cdf((1 + coverage) / 2)
        mean, width = self._wide_mean(process, new), half * deviation(process, new)
        return Interval(cast_as(mean - width, new), cast_as(mean + width, new))

    def _wide_mean(self, process: GaussianProcess, x: Any) -> Any:
        """Return means of new targets, in the dtype of `widen`."""
        mean = process.mean(widen(x))
        return mean + like(self.y_mean_, mean)

    def _draw(self, x: Array, y: Float64 | None, weights: Float64 | None) -> FeatureMap:
        assert y is not None
        return draw_by_evidence(self, x, y, weights)

    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        x, y, weights = check_targets(self, x, y, sample_weight, reset=first, **options)
        for name, scale in (("noise", self.noise), ("amplitude", self.amplitude)):
            if scale is not None:
                check_scale(name, scale, 1 if y.ndim == 1 else y.shape[1])
        mean = average(y, weights) if first else self.y_mean_
        self._add(x, y - mean, weights, first)
        self.y_mean_: Any = mean

    def _solve(self, m: Moments) -> GaussianProcess:
        if self.noise is None or self.amplitude is None:
            check_targets_vary(m, self.y_mean_)
        shares = round(m.weight) < m.n
        given = reweigh(m, float(m.n)) if shares else m  # noise is that of a row of the mean weight
        return gp(given, noise=self.noise, amplitude=self.amplitude, lowest=lowest_ridge(m))


def deviation(process: GaussianProcess, x: Any) -> Any:
    """Return standard deviations of new targets, in the dtype of `widen`: float32 has no square of 1e-25."""
    variance = process.variance(widen(x))
    noise = process.noise**2 if variance.ndim == 2 else process.noise[0] ** 2
    return namespace(variance=variance).sqrt(variance + like(noise, variance))


def check_targets_vary(m: Moments, mean: Any) -> None:
    """Raise where targets less their mean are rounding: the evidence is then infinite at scales of 0."""
    rounding = 8 * np.finfo(float).eps * np.abs(mean)
    same = np.flatnonzero(np.sqrt(np.diagonal(m.y_gram) / m.weight) <= rounding)
    if same.size:
        columns = f" in column {', '.join(map(str, same[:3]))}" if len(np.atleast_1d(mean)) > 1 else ""
        raise ParameterError(
            "y must vary in each column for the evidence to choose noise and amplitude, and is the same in all of "
            f"n_samples = {m.n}{columns}: give both"
        )
