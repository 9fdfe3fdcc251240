"""Linear models on features whose loss is not that of least squares: quantiles, Huber, Poisson, squared hinge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, frozen, namespace, to_numpy64
from kernattn._arrays.plain import quiet
from kernattn._arrays.units import in_units
from kernattn._runtime.checks import (
    boolean,
    finite_number,
    instance_of,
    one_of,
    positive_integer,
    positive_number,
    shown,
)
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.extras import bar, has_bar
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap
from kernattn.solvers._losses.fits import fit_one
from kernattn.solvers._losses.labels import columns_of, find_classes, given_penalty, likeliest, walk_labelled
from kernattn.solvers._losses.losses import Huber, Loss, Poisson, Quantile, SquaredHinge
from kernattn.solvers._losses.penalty import choose_penalty
from kernattn.solvers._losses.quasi_newton import Fit, Problem
from kernattn.solvers._losses.scored import Scored
from kernattn.solvers._losses.sweeps import Sweeps, times
from kernattn.solvers._losses.units import penalty_in_units, unit_of_weights

LOSSES = "huber", "poisson", "quantile", "squared_hinge"


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(Scored):
    """A fit of a linear model on features.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    loss : {"huber", "poisson", "quantile", "squared_hinge"}
        The loss.
    penalty : float
        The penalty lambda.
    iterations : int
        Steps that were taken; of several classes, the most of one.
    converged : bool
        Whether the sum is proved to be, or is by its curvature, within `tolerance` of the least.
    scale : float
        Huber's sigma; NaN of other losses. It is held above 1e-6 of the targets' mean deviation: where most rows are
        fitted exactly the sum would have it at 0, and `converged` is of the sum whose scale is no less.
    classes : (k,) numpy.ndarray
        The labels, sorted, of rows whose weight is not 0; of numbers, none.
    """

    phi: FeatureMap
    loss: str
    penalty: float
    iterations: int
    converged: bool
    scale: float
    classes: NDArray[Any]
    _weights: Float64  # (M, c)
    _intercept: Float64  # (c,)

    def __repr__(self) -> str:
        """Return the loss, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        return f"LinearModel({self.loss}, penalty={self.penalty:g}, {state}, phi={self.phi!r})"

    @outside_graphs
    def predict(self, x: Array, *, backend: str | None = None) -> Any:
        """Return quantiles or means f(x), means of counts e^f(x) in the dtype of x, or labels on the host, (..., n)."""
        scores = self.scores(x, backend=backend)
        if not len(self.classes):
            with np.errstate(over="ignore", under="ignore"):  # means beyond the dtype are infinite
                return namespace(scores=scores).exp(scores) if self.loss == "poisson" else scores
        return likeliest(self.classes, to_numpy64(scores))


@told_keywords
def linear_model(
    x: Array | Iterable[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]],
    phi: FeatureMap,
    *,
    y: Any = None,
    loss: str,
    quantile: float = 0.5,
    epsilon: float = 1.35,
    penalty: float | None = None,
    weights: Array | None = None,
    intercept: bool = True,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    progress: bool | None = False,
    backend: str | None = None,
) -> LinearModel:
    r"""Fit a linear model, :math:`\min_{w, b} \sum_i w_i\, L(y_i, \phi(x_i)^T w + b) + \frac{\lambda}{2} |w|^2`.

    The losses L(y, f) are those of scikit-learn, of which `alpha` and `C` are its parameters:

    - "huber", of its HuberRegressor (Huber 1981), with the scale :math:`\sigma` that makes the sum least:
      :math:`\sigma + \sigma H((y - f) / \sigma)`, where H(z) is :math:`z^2` up to `epsilon`, and
      :math:`2 \epsilon |z| - \epsilon^2` beyond; :math:`\lambda = 2\,\mathrm{alpha}`;
    - "poisson", of its PoissonRegressor: :math:`e^f - y f`, and counts have the mean :math:`e^f`;
      :math:`\lambda = n\,\mathrm{alpha}`;
    - "quantile", of its QuantileRegressor (Koenker and Bassett 1978), whose penalty is not a sum of squares:
      :math:`\max(q r, (q - 1) r)` with r = y - f;
    - "squared_hinge", of its LinearSVC: :math:`\max(0, 1 - y f)^2` of labels 1 and -1, each of several classes against
      the others; :math:`\lambda = 1 / C`. The intercept is not penalised, as that of LinearSVC is.

    Smooth losses take steps of L-BFGS from a Hessian of some of the rows, whose own fit is where they begin. A step is
    a sweep over all features, which are kept up to 1 GiB of them, and else made anew from the rows. Quantiles are then
    found by an interior point method on the rows near the fit (Portnoy and Koenker 1997), and the gap to the dual
    problem of all rows proves that it is the least. Targets of "huber" and "quantile" that are more than 30 mean
    deviations (300 median ones, if less) from the median, or the quantile, are first brought to there: on a line their
    pull is the same, and losses as large as theirs would hide what is left to find. They are not where the fit comes to
    one of them.

    Parameters
    ----------
    x : (n, d) array, or blocks
        Rows, or blocks (x, y) or (x, y, weights), as `logistic` takes them.
    phi : FeatureMap
        The map.
    y : (n,) array_like
        Numbers; 0 or more for "poisson"; for "squared_hinge" labels, as `logistic` takes them. Left out where there are
        blocks.
    loss : {"huber", "poisson", "quantile", "squared_hinge"}
        The loss.
    quantile : float
        The quantile q of "quantile", between 0 and 1.
    epsilon : float
        Where Huber's loss turns from squares to a line, in units of the scale, more than 1.
    penalty : float, optional
        The penalty lambda, positive. None takes the one whose fits have the least loss on rows left out, of five folds
        of at most 4,096 rows, as `logistic` does; what is taken of fewer than 25 rows is, for "huber" and "quantile",
        times the curvature of the loss at the mean, as targets have a unit. Blocks need a penalty.
    weights : (n,) array, optional
        Weights of the rows, 0 or more.
    intercept : bool
        Fit b too; else it is 0.
    tolerance : float
        The last step is the one from which on the sum cannot fall by more than this part of itself.
    max_iterations : int
        Steps end there in any case: `converged` of the fit says which came first.
    progress : bool or None
        Show the sweeps on stderr; None shows them on a terminal only.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features.

    Returns
    -------
    LinearModel
        The fit.

    Raises
    ------
    ParameterError
        If a number is not allowed, blocks come without a penalty or can be walked once, rows or weights are not finite,
        no weight is above 0, counts are negative or all 0, labels are of one class, or the fit is beyond float64.
    ShapeError, DTypeError, EmptyInputError
        If arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + rng.exponential(0.2, 2000)
    >>> phi = ka.random_features(ka.kernels.Gaussian(0.5), dim=1, num_features=64, rng=0)
    >>> fit = ka.solvers.linear_model(x, phi, y=y, loss="quantile", quantile=0.9, penalty=1e-2)
    >>> round(float(np.mean(y <= fit.predict(x))), 2)
    0.9
    """
    instance_of("phi", phi, FeatureMap)
    one_of("loss", loss, LOSSES)
    made: Loss = loss_of(loss, quantile, epsilon)
    tolerance = positive_number("tolerance", tolerance)
    penalty = given_penalty(penalty, x)
    positive_integer("max_iterations", max_iterations)
    boolean("intercept", intercept)
    has_bar("linear_model", progress)
    blocks = walk_labelled(phi, x, y, weights)
    rows = Sweeps(phi, blocks, backend)
    classes = find_classes(rows.told) if loss == "squared_hinge" else np.zeros(0)
    targets = columns_of(rows.labels, classes) if len(classes) else [_numbers(loss, rows.labels)]
    if not rows.weights.any():
        raise ParameterError("weights must not be 0 in all rows")
    for each in targets:
        made.check(each[rows.weights > 0])
    unit = unit_of_weights(rows.weights)
    shares = in_units(rows.weights, unit)
    near = [made.bring_near(each, shares, bool(intercept)) for each in targets]
    if penalty is None:
        penalty = choose_penalty(x, near, rows.weights, phi, made, bool(intercept), backend)
    size = phi.num_features_of(next(blocks())[0].shape[1])
    with bar("linear_model", progress, unit="pass") as shown_passes:
        own = {"shown": shown_passes, "unit": unit}
        problem = Problem(rows, targets[0], shares, made, penalty_in_units(penalty, unit), bool(intercept), **own)
        limits = size, tolerance, max_iterations
        fits = [_fit_near(problem._replace(y=y), each, *limits) for y, each in zip(targets, near, strict=True)]
    points = np.stack([point for point, _, _ in fits], axis=1)
    scale = float(np.exp(points[size + 1, 0])) if loss == "huber" else np.nan
    steps, converged = max(steps for _, steps, _ in fits), all(converged for _, _, converged in fits)
    coefficients = frozen(points[:size].copy()), frozen(points[size].copy())
    return LinearModel(phi, loss, penalty, steps, converged, scale, classes, *coefficients)


def _fit_near(problem: Problem, near: Float64, size: int, tolerance: float, most: int) -> Fit:
    """Return the least point by targets that are brought near, unless its scores come to one of them."""
    fit = fit_one(problem._replace(y=near), size, tolerance, most)
    moved = np.flatnonzero((near != problem.y) & (problem.weights > 0))
    if not len(moved):
        return fit
    scale = float(np.exp(fit.point[size + 1])) if len(fit.point) > size + 1 else np.nan
    scores = np.empty(len(near))
    for here, features in problem.rows.parts():
        scores[here] = times(features, fit.point[:size])
    beyond = (near - scores - fit.point[size])[moved] * np.sign(problem.y - near)[moved]
    return fit if (beyond > problem.loss.reach_of(scale)).all() else fit_one(problem, size, tolerance, most)


def loss_of(name: str, quantile: float, epsilon: float) -> Loss:
    """Return the loss of a name."""
    if not 0 < (part := finite_number("quantile", quantile)) < 1:
        raise ParameterError(f"quantile must be between 0 and 1; got {shown(quantile)}")
    if not (most := finite_number("epsilon", epsilon)) > 1:
        raise ParameterError(f"epsilon must be more than 1; got {shown(epsilon)}")
    made: dict[str, Loss] = {"huber": Huber(most), "poisson": Poisson(), "quantile": Quantile(part)}
    return made.get(name, SquaredHinge())


def _numbers(loss: str, labels: NDArray[Any]) -> Float64:
    """Return targets as numbers."""
    if labels.dtype.kind not in "fiu":
        raise DTypeError(f"y must hold numbers for loss={loss!r}; got {shown(labels)}")
    return labels.astype(np.float64)
