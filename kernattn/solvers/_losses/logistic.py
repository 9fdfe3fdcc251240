"""Logistic regression on features, multinomial where there are several classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, frozen, like, to_numpy64
from kernattn._arrays.plain import quiet
from kernattn._arrays.units import in_units
from kernattn._runtime.checks import boolean, instance_of, positive_integer, positive_number
from kernattn._runtime.deprecated import old_arguments, old_attribute, old_order, old_positions
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.lazy_scipy import special
from kernattn.features import FeatureMap
from kernattn.solvers._losses.fits import fit_one
from kernattn.solvers._losses.labels import columns_of, find_classes, given_penalty, likeliest, walk_labelled
from kernattn.solvers._losses.logistic_penalty import hold_out, warn_of_least
from kernattn.solvers._losses.losses import LogLoss
from kernattn.solvers._losses.quasi_newton import Problem
from kernattn.solvers._losses.scored import Scored
from kernattn.solvers._losses.softmax import Loss, Passes, minimise, origin
from kernattn.solvers._losses.sweeps import Sweeps
from kernattn.solvers._losses.units import penalty_in_units, unit_of_weights


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class Logistic(Scored):
    """A fit of logistic regression.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    classes : (k,) numpy.ndarray
        The labels, sorted, of rows whose weight is not 0.
    penalty : float
        The penalty lambda.
    iterations : int
        Steps that were taken.
    converged : bool
        Whether they came to an end before `max_iterations`.
    """

    phi: FeatureMap
    classes: NDArray[Any]
    penalty: float
    iterations: int
    converged: bool
    _weights: Float64  # (M, 1) of two classes, or (M, k)
    _intercept: Float64

    ridge = old_attribute("ridge", "penalty")

    def __repr__(self) -> str:
        """Return the sizes, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        return f"Logistic({len(self.classes)} classes, penalty={self.penalty:g}, {state}, phi={self.phi!r})"

    @outside_graphs
    def predict_proba(self, x: Array, *, backend: str | None = None) -> Array:
        """Return probabilities of the classes, (..., n, k) in the dtype of x."""
        scores = self.scores(x, backend=backend)
        host = to_numpy64(scores)
        two = len(self.classes) == 2
        chances = special.expit(np.stack([-host, host], axis=-1)) if two else special.softmax(host, axis=-1)
        return like(chances, scores)

    @outside_graphs
    def predict(self, x: Array, *, backend: str | None = None) -> NDArray[Any]:
        """Return the likeliest labels, (..., n), on the host."""
        return likeliest(self.classes, to_numpy64(self.scores(x, backend=backend)))


@told_keywords
@old_order(FeatureMap, "phi")
@old_positions("y")
@old_arguments(ridge="penalty")
def logistic(
    x: Array | Iterable[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]],
    phi: FeatureMap,
    *,
    y: Any = None,
    penalty: float | None = None,
    weights: Array | None = None,
    intercept: bool = True,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    progress: bool | None = False,
    backend: str | None = None,
) -> Logistic:
    r"""Fit logistic regression, :math:`\min \sum_i -w_i \log p_{y_i}(x_i) + \frac{\lambda}{2} |W|^2`.

    Of two classes, the second has :math:`p = 1 / (1 + e^{-f(x)})`, f(x) = phi(x)^T w + b. Of more, the multinomial
    model has :math:`p_k = e^{f_k(x)} / \sum_l e^{f_l(x)}`, as scikit-learn's LogisticRegression has it, whose C is
    one over lambda. The intercept is not penalised. Steps are those of L-BFGS (Liu and Nocedal 1989): of two classes
    from a Hessian of some of the rows, whose own fit is where they begin, as `linear_model` takes them; of more in
    coordinates that the Hessian makes round, made anew after 8, 16, 32, ... steps. A step passes over the features,
    which are kept up to 1 GiB of them, and else made anew from the rows. Classes that a plane divides do no harm.

    Parameters
    ----------
    x : (n, d) array, or blocks
        Rows; or an iterable of blocks (x, y) or (x, y, weights) that can be walked again, as a list can, or a function
        that returns an iterable each time it is called.
    phi : FeatureMap
        The map.
    y : (n,) array_like
        Labels: numbers, booleans or strings. Left out where there are blocks.
    penalty : float, optional
        The penalty lambda, positive. None takes the one whose fits have the least log loss on rows left out: five folds
        of at most 4,096 rows, by a digest of their inputs, so that neither their order nor copies matter. Powers of the
        root of ten from 1e-5 to 300 are tried, times the features' mean squared norm and the mean weight of rows that
        differ; 1, or the mean weight if that is less, is taken where fewer than 25 rows differ, but no less than 1e-10
        times the sum of weights and that norm. Blocks need a penalty.
    weights : (n,) array, optional
        Weights of the rows, 0 or more.
    intercept : bool
        Fit b too; else it is 0.
    tolerance : float
        The last step is the one from which on the sum cannot fall by more than this part of itself, as far as the
        curvature that the steps met tells: of several classes it is a mean, and the sum may fall a little further.
    max_iterations : int
        Steps end there in any case: `converged` of the fit says which came first.
    progress : bool or None
        Show the steps on stderr; None shows them on a terminal only.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).uniform(-2, 2, (1000, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 2, "inside", "outside")
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> fit = ka.solvers.logistic(x, phi, y=y, penalty=1e-2)
    >>> fit.predict(np.array([[0.0, 0.1], [1.5, 1.5]])).tolist()
    ['inside', 'outside']
    """
    instance_of("phi", phi, FeatureMap)
    tolerance = positive_number("tolerance", tolerance)
    penalty = given_penalty(penalty, x)
    positive_integer("max_iterations", max_iterations)
    boolean("intercept", intercept)
    has_bar("logistic", progress)  # else what it lacks shows after a pass over the blocks
    blocks = walk_labelled(phi, x, y, weights)
    rows = Sweeps(phi, blocks, backend)
    classes = find_classes(rows.told)
    if penalty is None:
        choice = hold_out(*next(blocks()), phi, classes, bool(intercept), backend)
        warn_of_least(choice)
        penalty = choice.penalty
    size = phi.num_features_of(next(blocks())[0].shape[1])
    with bar("logistic", progress, unit="pass") as shown_passes:
        unit = unit_of_weights(rows.weights)
        scaled = penalty_in_units(penalty, unit)
        if len(classes) == 2:
            labels, shares = columns_of(rows.labels, classes)[0], in_units(rows.weights, unit)
            own = {"shown": shown_passes, "unit": unit}
            problem = Problem(rows, labels, shares, LogLoss(), scaled, bool(intercept), **own)
            point, steps, converged = fit_one(problem, size, tolerance, max_iterations)
            point = point[:, None]
        else:
            loss = Loss(Passes(rows, classes, unit), len(classes), scaled, bool(intercept), shown_passes, unit)
            point, steps, converged = minimise(loss, origin(size, len(classes)), tolerance, max_iterations)
    return Logistic(phi, classes, penalty, steps, converged, frozen(point[:-1]), frozen(point[-1]))
