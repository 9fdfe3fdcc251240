"""Support vector classification on features, by the squared hinge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.sklearn._at_once import FittedAtOnce
from kernattn.sklearn._drawn import draw_for_labels, without_zeros
from kernattn.sklearn._inputs import check_labels, one_ridge
from kernattn.sklearn._maps import Classifier
from kernattn.sklearn._parameters import check_parameters
from kernattn.solvers import linear_model


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureSVC(Classifier, FittedAtOnce):
    r"""Support vectors on features, :math:`\min \sum_i w_i \max(0, 1 - y_i f(x_i))^2 + \frac{\lambda}{2} |w|^2`.

    It is `kernattn.solvers.linear_model` with the loss "squared_hinge", that of scikit-learn's LinearSVC:
    :math:`f(x) = \phi(x)^T w + b` for the second of two classes, or for each of more against the others. A weight
    counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state, linear : object
        The map and its draw, as `FeatureLogistic` takes them.
    ridge : float or None
        The penalty :math:`\lambda`; scikit-learn's C is one over it. None takes the one with the least loss on rows
        left out, as `kernattn.solvers.linear_model` does.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    max_iter : int
        Maximum number of steps.
    metric : {None, "learned"}
        In which metric rows are, as `FeatureRidge` takes it, of targets 1 and -1 for each class.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.
    classes_ : (K,) numpy.ndarray
        The labels, sorted, of rows whose weight is not 0.
    solution_ : kernattn.solvers.LinearModel
        The fit.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt.
    n_iter_ : int
        Number of steps, of several classes the most of one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureSVC
    >>> x = np.random.default_rng(0).standard_normal((500, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 1, "inside", "outside")
    >>> model = FeatureSVC(num_features=64, random_state=0).fit(x, y)
    >>> model.predict(np.array([[0.1, 0.2], [2.0, -1.0]]))
    array(['inside', 'outside'], dtype='<U7')
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit rows X (n, d) with labels y (n,); `sample_weight` (n,) says how often each counts."""
        check_parameters(self)
        x, y, weights = check_labels(self, X, y, sample_weight, reset=True, ensure_min_samples=2)
        ridge = one_ridge(self.ridge)
        x, y, weights = without_zeros(x, y, weights)
        phi = draw_for_labels(self, x, y, weights, np.unique(y))
        self._solve(linear_model, x, phi, y, weights, ridge, loss="squared_hinge")
        self.classes_ = self.solution_.classes
        return self

    def _scores(self, x: Array) -> Array:
        return self.solution_.scores(x)
