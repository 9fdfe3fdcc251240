"""Ridge regression on features."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kernattn.sklearn._inputs import regression, rows
from kernattn.sklearn._on_moments import OnMoments, lowest
from kernattn.solvers import Moments, Ridge, ridge

__all__ = ["FeatureRidge"]


class FeatureRidge(MultiOutputMixin, RegressorMixin, OnMoments):
    r"""Ridge regression on features, :math:`\min_{w, b} \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    It is `kernattn.solvers.ridge` of the moments of the rows, so rows can come in parts, and memory does not depend on
    their number. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection : object
        The map, as `RandomFeatures` takes them.
    ridge : float, (c,) array_like or None
        The penalty :math:`\lambda`, on the sum over rows. None takes the one that generalised cross-validation prefers,
        for each target its own.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    random_state : int, RandomState or None
        Source of the draw, as `RandomFeatures` takes it.

    Attributes
    ----------
    feature_map_ : FeatureMap
        The map.
    moments_ : Moments
        Sums over the rows.
    solution_ : kernattn.solvers.Ridge
        The fit, with its ridge, its path and leverages.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureRidge
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> round(FeatureRidge(lengthscale=0.5, num_features=64, random_state=0).fit(x, y).score(x, y), 2)
    0.98
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        lengthscale: Any = None,
        num_features: int = 256,
        estimator: str = "auto",
        projection: Any = None,
        ridge: Any = None,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.num_features = num_features
        self.estimator = estimator
        self.projection = projection
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) or (n, c) array_like
            Targets.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        self._take(X, y, sample_weight, True, ensure_min_samples=2)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to those that were given before; the first ones draw the map.

        The equations are solved when a prediction is asked for.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) or (n, c) array_like
            Targets.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        self._take(X, y, sample_weight, not self._begun)
        return self

    def predict(self, X: Any) -> Any:
        """Return predictions.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.

        Returns
        -------
        (n,) or (n, c) array
            The predictions.
        """
        check_is_fitted(self)
        x = rows(self, X, reset=False)
        return self.solution_.predict(x)

    def _take(self, X: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        self._add(*regression(self, X, y, sample_weight, first, **options), first)

    def _solve(self, m: Moments) -> Ridge:
        return ridge(m, self.ridge, intercept=self.fit_intercept, lowest=lowest(m))
