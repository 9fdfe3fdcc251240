"""The least point of the multinomial logistic sum: L-BFGS in coordinates that the Hessian of a point makes round."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, norm, solve_triangular

from kernattn._arrays.namespaces import Array, Float64, constant, namespace, to_numpy64, without_flags
from kernattn._arrays.units import in_units
from kernattn._runtime.lazy_scipy import optimize, special
from kernattn.solvers._losses.sweeps import Sweeps, times
from kernattn.solvers._losses.units import refuse_penalty

FIRST = 8  # steps between the first two Hessians; twice as many each time
LATE = 100.0  # an old Hessian makes a slope look so much smaller
NO_SLOPE = 1e-12  # of the rows: the curvature of an intercept that no row tells


class Labelled(NamedTuple):
    """Features of some rows, with their classes and weights."""

    features: Array  # (n, M), float64 where its library has it
    codes: NDArray[np.intp]  # (n,)
    weights: Float64  # (n,)


class Passes:
    """Passes over rows with their classes; rows of other labels, which have no weight, count as the first class."""

    def __init__(self, rows: Sweeps, classes: NDArray[Any], unit: float = 1.0) -> None:
        there = np.isin(rows.labels, classes)
        self._codes = np.where(there, np.searchsorted(classes, rows.labels), 0)
        self._rows, self._weights = rows, in_units(there * rows.weights, unit)

    def __iter__(self) -> Iterator[Labelled]:
        """Walk over the rows."""
        for here, features in self._rows.blocks():
            yield Labelled(features, self._codes[here], self._weights[here])


class Loss(NamedTuple):
    """The penalised sum over rows that a fit makes least, of points (M + 1, c): weights, and intercepts last.

    Two classes have one column, the second's; several have one each.
    """

    rows: Iterable[Labelled]
    classes: int
    penalty: float
    intercept: bool
    shown: Any = None  # a bar, or None
    unit: float = 1.0  # of weights and the penalty, in which errors tell it

    @property
    def columns(self) -> int:
        """Columns c of a point."""
        return 1 if self.classes == 2 else self.classes

    def penalties(self, size: int) -> Float64:
        """Return the penalty of each of so many rows of a point."""
        return np.append(np.full(size - 1, self.penalty), 0.0)

    @without_flags
    def at(self, point: Float64) -> tuple[float, Float64]:
        """Return the sum and its gradient."""
        penalties = self.penalties(len(point))[:, None]
        loss, gradient = 0.5 * float(np.sum(penalties * point * point)), penalties * point
        for features, codes, weights in self.rows:
            scores = times(features, point[:-1]) + point[-1]
            losses, chances = judge(scores, codes)
            loss += float(weights @ losses)
            chances -= _indicators(codes, self.columns)
            chances *= weights[:, None]
            gradient[:-1] += times(namespace(features=features).matrix_transpose(features), chances)
            gradient[-1] += chances.sum(axis=0) if self.intercept else 0.0
        if self.shown is not None:
            self.shown.update()
        return loss, gradient

    @without_flags
    def root(self, point: Float64) -> Float64:
        """Return the Cholesky factor (M + 1, M + 1) of the Hessian at a point, the mean of the columns'."""
        hessian = np.diag(self.penalties(len(point)))
        for features, codes, weights in self.rows:
            _, chances = judge(times(features, point[:-1]) + point[-1], codes)
            curvature = weights * np.mean(chances * (1 - chances), axis=1)
            xp = namespace(features=features)
            half = features * constant(xp, np.sqrt(curvature)[:, None], features.dtype, features)
            hessian[:-1, :-1] += to_numpy64(xp.matmul(xp.matrix_transpose(half), half))
            hessian[-1, :-1] += times(xp.matrix_transpose(features), curvature[:, None])[:, 0]
            hessian[-1, -1] += curvature.sum() + NO_SLOPE * weights.sum()
        if not self.intercept:
            hessian[-1] = np.append(np.zeros(len(point) - 1), 1.0)
        hessian[:-1, -1] = hessian[-1, :-1]
        try:
            factor: Float64 = cholesky(hessian, lower=True)
        except np.linalg.LinAlgError:
            raise refuse_penalty(self.penalty, float(norm(hessian)), self.unit) from None
        return factor


def origin(size: int, classes: int) -> Float64:
    """Return the point at which all chances are equal, of so many features and classes."""
    return np.zeros((size + 1, 1 if classes == 2 else classes))


class Fit(NamedTuple):
    """Where the steps ended."""

    point: Float64  # (M + 1, c)
    steps: int
    converged: bool


def minimise(loss_of: Loss, start: Float64, tolerance: float, most: int) -> Fit:
    r"""Return the least point, by `descend` in coordinates :math:`L^T w`, where :math:`L L^T` is the Hessian.

    It is made anew after 8, 16, 32, ... steps. The end is where the sum cannot fall by more than `tolerance` of itself.
    """
    point, steps, stretch = start, 0, FIRST
    while True:
        root = by_root(loss_of.root(point))
        point, more, left = descend(loss_of, root, point, tolerance / LATE, min(stretch, most - steps))
        steps, stretch = steps + more, 2 * stretch
        if left * LATE <= tolerance:
            return Fit(point, steps, True)
        if steps >= most or not more:  # without a step, rounding is all that is left to find
            return Fit(point, steps, left <= tolerance)


class Coordinates(NamedTuple):
    """Coordinates in which the sum is about as steep in all directions."""

    of: Callable[[Float64], Float64]  # the coordinates of a point
    back: Callable[[Float64], Float64]  # the point of coordinates
    slope: Callable[[Float64], Float64]  # the gradient by coordinates


def by_root(factor: Float64) -> Coordinates:
    """Return the coordinates of a Cholesky factor (M + 1, M + 1)."""
    solve = partial(solve_triangular, factor, lower=True)
    return Coordinates(lambda point: factor.T @ point, partial(solve, trans="T"), solve)


def by_widths(widths: Float64) -> Coordinates:
    """Return coordinates of one width (M + 1, 1) for each axis."""
    return Coordinates(lambda point: point / widths, lambda given: given * widths, lambda gradient: gradient * widths)


@without_flags
def descend(loss_of: Loss, axes: Coordinates, start: Float64, part: float, most: int) -> tuple[Float64, int, float]:
    """Return a point, the steps of L-BFGS to it, and the part by which the sum can fall from there, of itself.

    The steps end once that is `part` or less, as far as the coordinates are as steep everywhere as a unit Hessian. What
    is returned counts by what the steps met as well: where a sum flattens, the old Hessian hides how far it falls yet.
    """
    left = np.inf

    def value(flat: Float64) -> tuple[float, Float64]:
        nonlocal left
        loss, gradient = loss_of.at(axes.back(flat.reshape(start.shape)))
        slope = axes.slope(gradient).ravel()
        left = float(slope @ slope) / 2 / loss
        return loss, slope

    def end(_: Float64) -> None:
        if left <= part:
            raise StopIteration

    options = {"maxiter": most, "ftol": 0.0, "gtol": 0.0, "maxfun": 20 * most}
    least = optimize.minimize(value, axes.of(start).ravel(), jac=True, method="L-BFGS-B", callback=end, options=options)
    met = float(least.jac @ least.hess_inv.matvec(least.jac)) / 2 / least.fun
    return axes.back(least.x.reshape(start.shape)), least.nit, max(left, met)


def judge(scores: Float64, codes: NDArray[np.intp]) -> tuple[Float64, Float64]:
    """Return minus the log chances (n,) of the rows' classes, and the chances (n, c) of all classes."""
    if scores.shape[1] == 1:
        score = scores[:, 0]
        return np.logaddexp(0.0, np.where(codes == 1, -score, score)), special.expit(scores)
    shifted = scores - scores.max(axis=1, keepdims=True)
    chances = np.exp(shifted)
    sums = chances.sum(axis=1, keepdims=True)
    chances /= sums
    return np.log(sums[:, 0]) - np.take_along_axis(shifted, codes[:, None], axis=1)[:, 0], chances


def _indicators(codes: NDArray[np.intp], columns: int) -> Float64:
    """Return 1 where a row is of a column's class, (n, c)."""
    classes = np.arange(columns) if columns > 1 else np.ones(1)
    hits: Float64 = (codes[:, None] == classes).astype(np.float64)
    return hits
