"""Logistic regression on features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.features import FeatureMap
from kernattn.sklearn._at_once import FittedAtOnce
from kernattn.sklearn._drawn import draw_for_labels, without_zeros
from kernattn.sklearn._inputs import check_labels, one_ridge
from kernattn.sklearn._maps import Classifier
from kernattn.sklearn._mixed import mix, share_of_kernel, split_map
from kernattn.sklearn._parameters import check_parameters
from kernattn.solvers import Logistic, logistic
from kernattn.solvers._losses.logistic_penalty import Choice, hold_out, warn_of_least


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureLogistic(Classifier, FittedAtOnce):
    r"""Logistic regression on features, :math:`\min \sum_i -w_i \log p_{y_i}(x_i) + \frac{\lambda}{2} |W|^2`.

    It is `kernattn.solvers.logistic`: :math:`p = 1 / (1 + e^{-f(x)})` for the second of two classes, with
    :math:`f(x) = \phi(x)^T w + b`, and the multinomial model for more. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `RandomFeatures` takes them. A lengthscale of "tune" is 1, 2, 4 or 8 times "scale",
        whichever has the least log loss on rows left out; "ard" is one for each column, by the evidence of targets 1
        and -1. None is "tune" for a kernel by name.
    linear : bool or None
        Whether a line, of columns in units of their deviations, is beside the kernel. None, where rows left out tune
        the lengthscale, adds up the scores of two fits, :math:`f = s f_k + (1 - s) f_l`: :math:`f_l` of the line alone,
        and :math:`f_k` of the kernel with the line or without it. The share s makes the log loss of the n rows left
        out, plus :math:`s^2 \log n`, least. Where `ridge` is given, one of these fits is taken: the line where the
        others gain no more than log n. Where the lengthscale is not tuned, None is False.
    ridge : float or None
        The penalty :math:`\lambda`; scikit-learn's C is one over it. None takes the largest whose log loss on rows left
        out is within half a standard error of the least, in the folds of `kernattn.solvers.logistic` without a
        penalty. These losses are averages over penalties nearby.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    max_iter : int
        Maximum number of steps of L-BFGS, each a pass over the features.
    metric : {None, "learned"}
        In which metric rows are, as `FeatureRidge` takes it, of targets 1 and -1 for each class.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.
    classes_ : (K,) numpy.ndarray
        The labels, sorted, of rows whose weight is not 0.
    solution_ : kernattn.solvers.Logistic
        The fit; of two that are added up the sum, with the penalty of the kernel's.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt.
    n_iter_ : int
        Number of steps.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureLogistic
    >>> x = np.random.default_rng(0).standard_normal((500, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 1, "inside", "outside")
    >>> model = FeatureLogistic(num_features=64, random_state=0).fit(x, y)
    >>> model.predict_proba(np.array([[0.1, 0.2], [2.0, -1.0]])).round(1)
    array([[1., 0.],
           [0., 1.]])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit rows X (n, d) with labels y (n,); `sample_weight` (n,) says how often each counts."""
        check_parameters(self)
        x, y, weights = check_labels(self, X, y, sample_weight, reset=True, ensure_min_samples=2)
        penalty = one_ridge(self.ridge)
        x, y, weights = without_zeros(x, y, weights)
        classes = np.unique(y)
        beside: list[bool] = []
        mixed = penalty is None and self.linear is None and len(classes) > 1
        phi = draw_for_labels(self, x, y, weights, classes, beside.append if mixed else None)

        def choose(phi: FeatureMap) -> Choice:
            return hold_out(x, y, weights, phi, classes, self.fit_intercept, cautious=True)

        def solve(phi: FeatureMap, choice: Choice) -> Logistic:
            warn_of_least(choice)
            self._solve(logistic, x, phi, y, weights, choice.penalty)
            fit: Logistic = self.solution_
            return fit

        if penalty is not None or len(classes) < 2:
            self._solve(logistic, x, phi, y, weights, penalty)
        elif not beside:
            solve(phi, choose(phi))
        else:
            kernel, line = split_map(phi)
            kernel = phi if beside[0] else kernel
            choices = choose(kernel), choose(line)
            share = share_of_kernel(*choices)
            if share in (0.0, 1.0):
                solve(*((line, choices[1]) if share == 0 else (kernel, choices[0])))
            else:
                self.solution_ = mix(phi, solve(kernel, choices[0]), solve(line, choices[1]), share)
                self.feature_map_, self.n_iter_ = phi, self.solution_.iterations
        self.classes_ = self.solution_.classes
        return self

    def _scores(self, x: Array) -> Array:
        return self.solution_.scores(x)

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities (n, K) of the classes, in the order of `classes_`, for rows X (n, d)."""
        x = self._check_new(X)
        return self.solution_.predict_proba(x)
