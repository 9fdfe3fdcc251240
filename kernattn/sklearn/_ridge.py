"""Ridge regression on features."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.namespaces import Array, Float64
from kernattn.sklearn._inputs import rows
from kernattn.sklearn._least_squares import LeastSquares
from kernattn.sklearn._regressor import Regressor


class FeatureRidge(Regressor, LeastSquares):
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

    _least_rows = 2

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
        return self.solution_.predict(rows(self, X, reset=False))

    def _take(self, x: Array, y: Float64, weights: Float64 | None, first: bool) -> None:
        self._add(x, y, weights, first)
