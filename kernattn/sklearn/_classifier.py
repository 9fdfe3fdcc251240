"""Classification by least squares on features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.sklearn._inputs import check_labels, signs_of
from kernattn.sklearn._maps import Classifier
from kernattn.sklearn._on_moments import LeastSquares


class FeatureClassifier(Classifier, LeastSquares):
    r"""Least squares on features of labels, :math:`\min_{w, b} \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    The targets y are 1 for a class and -1 for the others; the class of the largest prediction is taken. It is
    `kernattn.solvers.ridge` of the moments of the rows, so rows can come in parts, and memory does not depend on their
    number. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `FeatureRidge` takes them.
    ridge, objective, fit_intercept, linear, metric : object
        The penalty :math:`\lambda`, how it is chosen, the intercept b, whether a line is beside the kernel, and in
        which metric rows are, as `FeatureRidge` takes them, for K classes.

    Attributes
    ----------
    feature_map_, n_features_in_, moments_ : object
        The map, the number d of columns, and sums over the rows.
    classes_ : (K,) numpy.ndarray
        The labels, sorted.
    solution_ : kernattn.solvers.Ridge
        The fit, of one target for two classes, else of one for each.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt.

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

    def partial_fit(  # type: ignore[override]
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add rows X (n, d), with labels y (n,), to those that were given before; the first ones draw the map.

        `classes` are all labels that there will be. The first call may leave them out where its rows hold all of them.
        `sample_weight` (n,) says how often each row counts. Equations are solved when a prediction is asked for.
        """
        return self._take_part(X, y, sample_weight, classes=classes)

    def _scores(self, x: Array) -> Array:
        return self.solution_.predict(x)

    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, *, classes: Any = None, **options: Any) -> None:
        x, y, weights = check_labels(self, x, y, sample_weight, reset=first, **options)
        there = y if weights is None else y[weights > 0]
        known = self.classes_ if not first else np.unique(there if classes is None else classes)
        if len(known) < 2:
            raise ParameterError(f"y must hold two classes or more; got one class, {shown(known.tolist()[0])}")
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ParameterError(
                f"classes must be those of the first call, {shown(known.tolist())}; got {shown(classes)}"
            )
        if len(strangers := np.setdiff1d(there, known)):
            raise ParameterError(
                f"y must hold the classes {shown(known.tolist())}; got {shown(strangers.tolist())} too: the first "
                "partial_fit takes all labels that there will be as classes="
            )
        self._add(x, signs_of(y, known), weights, first)
        self.classes_ = known
