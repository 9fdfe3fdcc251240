"""Classification by least squares on features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.sklearn._inputs import classification
from kernattn.sklearn._labels import Classifier
from kernattn.sklearn._least_squares import LeastSquares


class FeatureClassifier(Classifier, LeastSquares):
    r"""Least squares on features of labels, :math:`\min_{w, b} \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    The targets y are 1 for a class and -1 for the others; the class of the largest prediction is taken. It is
    `kernattn.solvers.ridge` of the moments of the rows, so rows can come in parts, and memory does not depend on their
    number. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection : object
        The map, as `RandomFeatures` takes them.
    ridge : float, (K,) array_like or None
        The penalty :math:`\lambda`, on the sum over rows. None takes the one that generalised cross-validation prefers,
        for each class its own.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    random_state : int, RandomState or None
        Source of the draw, as `RandomFeatures` takes it.

    Attributes
    ----------
    classes_ : (K,) numpy.ndarray
        The labels, sorted.
    feature_map_ : FeatureMap
        The map.
    moments_ : Moments
        Sums over the rows.
    solution_ : kernattn.solvers.Ridge
        The fit, of one target for two classes, else of one for each.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureClassifier
    >>> x = np.random.default_rng(0).standard_normal((500, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 1, "inside", "outside")
    >>> model = FeatureClassifier(num_features=64, random_state=0).fit(x, y)
    >>> model.predict(np.array([[0.1, 0.2], [2.0, -1.0]]))
    array(['inside', 'outside'], dtype='<U7')
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) array_like
            Labels.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        self._take(X, y, None, sample_weight, True, ensure_min_samples=2)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to those that were given before; the first ones draw the map.

        The equations are solved when a prediction is asked for.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) array_like
            Labels.
        classes : (K,) array_like, optional
            All labels that there will be. The first call may leave them out where its rows hold all of them.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        self._take(X, y, classes, sample_weight, not self._begun)
        return self

    def _scores(self, x: Array) -> Array:
        return self.solution_.predict(x)

    def _take(self, X: Any, y: Any, classes: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        x, y, weights = classification(self, X, y, sample_weight, first, **options)
        check_classification_targets(y)
        known = self.classes_ if not first else np.unique(y if classes is None else classes)
        if len(known) < 2:
            raise ParameterError(f"y must hold two classes or more; got one class, {shown(known.tolist()[0])}")
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ParameterError(
                f"classes must be those of the first call, {shown(known.tolist())}; got {shown(classes)}"
            )
        if len(strangers := np.setdiff1d(y, known)):
            raise ParameterError(
                f"y must hold the classes {shown(known.tolist())}; got {shown(strangers.tolist())} too"
            )
        signs = np.where(y[:, None] == known, 1.0, -1.0)
        self._add(x, signs[:, 1] if len(known) == 2 else signs, weights, first)
        self.classes_ = known
