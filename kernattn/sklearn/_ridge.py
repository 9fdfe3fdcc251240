"""Ridge regression on features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import MultiOutputMixin

from kernattn.sklearn._drawn import without_zeros
from kernattn.sklearn._inputs import array_beside, check_targets
from kernattn.sklearn._on_moments import LeastSquares
from kernattn.sklearn._range import MARGIN, BoundedRegressor, check_margin, widen_range
from kernattn.solvers import jackknife


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureRidge(MultiOutputMixin, BoundedRegressor, LeastSquares):
    r"""Ridge regression on features, :math:`\min_{w, b} \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    It is `kernattn.solvers.ridge` of the moments of the rows, so rows can come in parts, and memory does not depend on
    their number. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `RandomFeatures` takes them. An estimator None is "rpcholesky" where rows are given at
        once, by `fit`, in up to 1,024 columns of a stationary kernel, or 4,096 of `Tanimoto`, and no projection is
        given; else it is "auto".
        Its landmarks are among 4,096 of the rows that differ (four times num_features where that is more), by a digest,
        so that neither copies nor the order of rows have a part in it; of up to four times num_features such rows, all
        sets are alike. The lengthscale "tune" is the one with the largest evidence among "scale", 4 and 16 times it,
        shorter ones by quarters while they are better, and one between; 2,048 of the first rows and 128 landmarks
        judge. "ard" chooses one for each column, by the evidence. None is "tune" for
        a kernel given by name.
    linear : bool or None
        Whether a line, of columns in units of their deviations, is beside the kernel. None is True where the
        lengthscale is tuned, or the line alone where the evidence or folds prefer it, but not of the first of many rows
        by `partial_fit`; it is False where a lengthscale is given, and for sparse rows of more than 1,024 columns.
    ridge : float, (c,) array_like or None
        The penalty :math:`\lambda`, on the sum over rows. None takes the best by `objective`, for each target its own,
        but none below 1e-5 of the features' mean squared norm; a warning says if the best is at that limit.
    objective : {"folds", "evidence", "gcv"}
        What None makes best, as in `kernattn.solvers.ridge`. A row is in one of five folds by a digest of its inputs,
        so that neither the order of rows nor parts change the fit, and copies of a row are in one fold. Folds take the
        memory of five moments and five more eigendecompositions. The evidence chooses where rows are too few, or
        few of them are distinct, some 25. The number of rows in the evidence and in "gcv" is that of rows whose weight
        is not 0, or the sum of weights where that is more: a row of a tiny weight counts as a whole one there, while
        sums, and errors on folds, hold it as what it weighs.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    metric : {None, "learned"}
        "learned" is the metric of `kernattn.solvers.learn_metric`: a lengthscale of each column, or of each direction,
        or none where it is no better on rows left out. The kernel, and a line, are then of rows times its factor. A
        lengthscale is tuned as without it, but of fewer than 50 rows a column it is the one that was best with the
        metric. It takes one lengthscale, and no sparse rows.
    margin : float or None
        How far beyond the range of the targets that were fitted a prediction may be, in widths of that range: 0 or
        more. A line goes on beyond all rows that were learnt from, and a single row far outside them, or a few rows to
        learn from, would else make predictions without sense. None holds nothing, as trends may need it. Predictions
        are held, and with them scores: a change needs no other fit. `solution_` and intervals are not.

    Attributes
    ----------
    feature_map_, n_features_in_, moments_ : object
        The map, the number d of columns, and sums over the rows.
    solution_ : kernattn.solvers.Ridge
        The fit, with its penalty, its path and leverages.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt; `feature_map_` is then a `Transformed` map, unless its form is "none".
    target_range_ : (2,) or (2, c) array
        The least and the largest target of rows that count.

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

    margin: float | None = MARGIN

    def predict_interval(self, X: Any, X_train: Any, y_train: Any, coverage: float = 0.9) -> Any:
        """Return jackknife+ intervals (low, high) of rows X (m, d), by `kernattn.solvers.jackknife`.

        `X_train` (n, d) and `y_train` (n,) or (n, c) are the rows and targets that were fitted, all of them and without
        weights: the estimator does not keep them. Intervals are those of `solution_`, which `margin` does not hold: the
        prediction of a row far from all others can be outside of its interval.
        """
        new = self._check_new(X)
        x, y, _ = check_targets(self, X_train, y_train, None, reset=False)
        solution = self.solution_
        return jackknife(solution, new, x=x, y=array_beside(x, y), coverage=coverage)

    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        check_margin(self.margin)
        x, y, weights = check_targets(self, x, y, sample_weight, reset=first, **options)
        self._add(x, y, weights, first)
        x, y, _ = without_zeros(x, y, weights)
        if len(y):
            self.target_range_ = widen_range(None if first else self.target_range_, x, y)
