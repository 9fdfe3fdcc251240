"""Regression on features by other losses than squares: Huber, Poisson, quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.checks import one_of
from kernattn.sklearn._at_once import FittedAtOnce
from kernattn.sklearn._drawn import draw_for_numbers, without_zeros
from kernattn.sklearn._inputs import check_rows, check_weights, is_named, one_ridge, targets_of
from kernattn.sklearn._parameters import check_parameters
from kernattn.sklearn._range import MARGIN, BoundedRegressor, check_margin, widen_range
from kernattn.solvers import linear_model
from kernattn.solvers._losses.linear_model import loss_of
from kernattn.solvers._losses.losses import bring_near

LOSSES = "huber", "poisson", "quantile"
FAR = 3.0  # mean deviations from the median, beyond which targets do not choose a lengthscale


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureRegressor(BoundedRegressor, FittedAtOnce):
    r"""Regression on features by a loss, :math:`\min_{w, b} \sum_i w_i\, L(y_i, f(x_i)) + \frac{\lambda}{2} |w|^2`.

    It is `kernattn.solvers.linear_model`, with :math:`f(x) = \phi(x)^T w + b`. The losses are those of scikit-learn's
    HuberRegressor, PoissonRegressor and QuantileRegressor. A weight counts a row that many times.

    Parameters
    ----------
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `FeatureRidge` takes them. "tune" and "ard" look at the square roots of counts, and
        else at targets that are brought within three mean deviations of their median: a few far ones have no say.
    loss : {"huber", "poisson", "quantile"}
        The loss. Counts have the mean :math:`e^{f(x)}`, which is what `predict` returns.
    quantile : float
        Which quantile of the targets "quantile" predicts.
    epsilon : float
        Where Huber's loss turns from squares to a line, in units of the scale that it fits too, more than 1.
    ridge : float or None
        The penalty :math:`\lambda`. None takes the one with the least loss on rows left out, as
        `kernattn.solvers.linear_model` does.
    fit_intercept : bool
        Whether there is an intercept b, which is not penalised.
    max_iter : int
        Maximum number of steps.
    linear : bool or None
        Whether a line, of columns in units of their deviations, is beside the kernel, as `FeatureRidge` takes it.
    metric : {None, "learned"}
        In which metric rows are, as `FeatureRidge` takes it, of the targets that choose a lengthscale.
    margin : float or None
        How far beyond the range of the targets a prediction may be, in widths of that range, as `FeatureRidge` takes
        it. A mean of counts stays positive.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.
    solution_ : kernattn.solvers.LinearModel
        The fit.
    metric_ : kernattn.solvers.Metric or None
        The metric that was learnt.
    n_iter_ : int
        Number of steps.
    target_range_ : (2,) array
        The least and the largest target of rows that count.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeatureRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 1))
    >>> y = np.sin(3 * x[:, 0]) + rng.exponential(0.2, 500)
    >>> model = FeatureRegressor(loss="quantile", quantile=0.9, lengthscale=0.5, num_features=32, random_state=0)
    >>> bool(abs(np.mean(y <= model.fit(x, y).predict(x)) - 0.9) < 0.01)
    True
    """

    estimator: Any = None
    loss: str = "huber"
    quantile: float = 0.5
    epsilon: float = 1.35
    margin: float | None = MARGIN

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit rows X (n, d) with targets y (n,); `sample_weight` (n,) says how often each counts."""
        check_parameters(self)
        loss_of(one_of("loss", self.loss, LOSSES), self.quantile, self.epsilon)
        check_margin(self.margin)
        x, y = check_rows(self, X, y, y_numeric=True, reset=True, ensure_min_samples=2)
        x, y, weights = without_zeros(x, targets_of(y), check_weights(sample_weight, x))
        ridge = one_ridge(self.ridge)
        phi = draw_for_numbers(self, x, _judging_targets(y, weights, self.loss), weights)
        own = {"loss": self.loss, "quantile": self.quantile, "epsilon": self.epsilon}
        self._solve(linear_model, x, phi, y, weights, ridge, **own)
        self.target_range_ = widen_range(None, x, y)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = is_named(self.loss, "poisson")
        return tags


def _judging_targets(y: Float64, weights: Float64 | None, loss: str) -> Float64:
    """Return the targets by which squared errors choose a lengthscale."""
    if loss == "poisson":
        return np.sqrt(np.maximum(y, 0.0))
    shares = None if weights is None else in_units(weights, unit_of(weights))
    near = bring_near(y, shares, 0.5, True, FAR)
    return in_units(near, unit_of(near))
