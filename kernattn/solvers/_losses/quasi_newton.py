"""The least point of a convex sum over rows: quasi-Newton steps in the metric of a Hessian of some of the rows.

A sweep over the features gives the sum and its gradient; scores are kept, so that a search along a line costs none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from kernattn._arrays.namespaces import Float64, without_flags
from kernattn._runtime.lazy_scipy import optimize
from kernattn.solvers._losses.losses import Loss
from kernattn.solvers._losses.sweeps import Held, Sweeps, times, turned_times
from kernattn.solvers._losses.units import refuse_penalty

ROWS, MANY, ROOTS = 4096, 8, 48  # rows of a Hessian: as many at least, as many times the features, and the root of all
STALE = 8  # steps after which the Hessian is made anew
NO_SLOPE = 1e-12  # of the largest curvature, or of the sum: the curvature of a direction that no row tells
ENOUGH = 0.5  # of the slope along a line: where less is left, the first step is taken
CLOSE = 0.1  # of the slope, at which a search along a line ends
SURE = 2.0  # a Hessian of some rows may say that the sum can fall by half of what it can
ROUGHLY = 1e-3  # tolerance of the fit to some rows, where that to all begins
SINGLE = 8 * float(np.finfo(np.float32).eps)  # of the trace: the penalty from which on float32 makes a metric
SMALL = 1e-30  # for that penalty: squares of less are 0 in float32
AHEAD, FAST = 0.5, 0.1  # where steps leave so little of what was left, one that will leave half the tolerance is last

Solve = Callable[[Float64], Float64]


class Problem(NamedTuple):
    """The penalised sum over rows. A point is weights (M,), an intercept, and the loss's log scale if it has one."""

    rows: Sweeps | Held
    y: Float64  # (n,)
    weights: Float64  # (n,)
    loss: Loss
    penalty: float
    intercept: bool
    shown: Any = None  # a bar, or None
    least: float = 0.0  # what the losses leave out, as no score has a part in it
    unit: float = 1.0  # of the penalty, in which errors tell it

    def of_rows(self, rows: NDArray[np.intp], share: float = 1.0, dtype: Any = np.float64) -> "Problem":
        """Return the sum over some of the rows, which are sorted, each for so many, and show nothing of its sweeps."""
        y, weights = self.y[rows], share * self.weights[rows]
        least, held = float(weights @ self.loss.least_of(y)), Held(self.rows.take(rows, dtype))
        return self._replace(rows=held, y=y, weights=weights, shown=None, least=least)

    def at(self, point: Float64, size: int) -> "Place":
        """Return the sum and its gradient at a point of so many features."""
        gradient, scores = np.zeros(len(point)), np.empty(len(self.y))
        log_scale = point[size + 1 :]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            gradient[:size] = self.penalty * point[:size]
            value, out = self.least + self.penalty / 2 * float(point[:size] @ point[:size]), 0.0
            for here, features in self.rows.parts():
                weights, some = self.weights[here], scores[here]
                np.add(times(features, point[:size]), point[size], out=some)
                judged = self.loss.judge(some, self.y[here], log_scale)
                slopes = weights * judged.slopes
                value += float(weights @ judged.losses)
                gradient[:size] += turned_times(features, slopes)
                out += float(slopes.sum())
                if len(log_scale):
                    gradient[size + 1 :] += float(weights @ judged.by_log_scale)
        gradient[size] = out if self.intercept else 0.0
        if self.shown is not None:
            self.shown.update()
        return Place(point, value, gradient, scores)

    def along(self, place: "Place", trial: "Place", size: int) -> Callable[[float], tuple[float, float]]:
        """Return the sum and its slope along the line from one place to another, at 0 and at 1."""
        across, step = trial.scores - place.scores, trial.point - place.point

        def at(t: float) -> tuple[float, float]:
            point = place.point + t * step
            w, log_scale = point[:size], point[size + 1 :]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                judged = self.loss.judge(place.scores + t * across, self.y, log_scale)
                value = self.least + float(self.weights @ judged.losses) + self.penalty / 2 * float(w @ w)
                slope = float((self.weights * judged.slopes) @ across) + self.penalty * float(w @ step[:size])
                slope += float(np.sum(self.weights * judged.by_log_scale)) * float(step[size + 1 :].sum())
            return value, slope

        return at

    def kept(self, before: "Place", place: "Place", size: int) -> float:
        """Return the least part of its curvature that a row has kept from one place to another, at most 1."""
        scales = before.point[size + 1 :], place.point[size + 1 :]
        old, new = (
            self.loss.judge(each.scores, self.y, scale).curvatures
            for each, scale in zip((before, place), scales, strict=True)
        )
        had = (old > 0) & (self.weights > 0)
        return float(np.min(new[had] / old[had], initial=1.0))


class Place(NamedTuple):
    """A point, with the sum there, its gradient and the scores of the rows."""

    point: Float64
    value: float
    gradient: Float64
    scores: Float64  # (n,)


class Fit(NamedTuple):
    """Where the steps ended."""

    point: Float64
    steps: int
    converged: bool


Metric = Callable[[Problem, Place, int], Solve]  # which makes a gradient a step at some place


def hessian(problem: Problem, place: Place, size: int) -> Solve:
    """Return a solver with the Hessian of rows drawn among those that have a curvature, all if they are few."""
    judged = problem.loss.judge(place.scores, problem.y, place.point[size + 1 :])
    curvature = problem.weights * judged.curvatures
    rows, share = some_of(np.flatnonzero(curvature > 0), size)
    root = np.sqrt(share * curvature[rows])
    beside = np.stack([root] if judged.beside is None else [root, root * judged.beside[rows]], axis=1)
    matrix = _gram(problem, rows, root, beside) if len(rows) else np.zeros((size + beside.shape[1],) * 2)
    diagonal = np.diagonal(matrix).copy()
    diagonal[:size] += problem.penalty
    told = float(diagonal[: size + 1].max())  # the last number of a loss with a scale has another unit
    told = told if len(rows) else max(told, float(problem.weights.sum()))
    diagonal[size] += NO_SLOPE * told
    if judged.beside is not None:  # of the sum by the logarithm, which is convex in the scale
        diagonal[-1] += abs(float(np.sum(problem.weights * judged.by_log_scale))) + NO_SLOPE * place.value
    if not problem.intercept:
        matrix[size], matrix[:, size], diagonal[size] = 0.0, 0.0, 1.0
    np.fill_diagonal(matrix, diagonal)
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise refuse_penalty(problem.penalty, float(diagonal.sum()), problem.unit) from None
    return lambda gradient: cho_solve(factor, gradient, check_finite=False)


def _gram(problem: Problem, rows: NDArray[np.intp], root: Float64, beside: Float64) -> Float64:
    """Return the products of features times a root, and of what is beside them, in float32 where that will do.

    Of few rows float64 takes no time, and copies of a row are its weight to the last digits.
    """
    if len(rows) < ROWS:
        return _whole_gram(problem, rows, root, beside)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half = np.concatenate([problem.rows.take(rows, np.float32), beside], axis=1, dtype=np.float32)
        half[:, : -beside.shape[1]] *= root.astype(np.float32)[:, None]
        if SMALL <= np.vdot(half, half) * SINGLE <= problem.penalty:
            return np.asarray(half.T @ half, np.float64)
    return _whole_gram(problem, rows, root, beside)


def _whole_gram(problem: Problem, rows: NDArray[np.intp], root: Float64, beside: Float64) -> Float64:
    whole: Float64 = np.concatenate([problem.rows.take(rows) * root[:, None], beside], axis=1)
    return whole.T @ whole


def some_of(rows: NDArray[np.intp], size: int) -> tuple[NDArray[np.intp], float]:
    """Return rows for a Hessian of so many features, and for how many each stands."""
    most = max(ROWS, MANY * size, int(ROOTS * len(rows) ** 0.5))
    if len(rows) <= most:
        return rows, 1.0
    drawn = np.sort(np.random.default_rng(len(rows)).choice(rows, most, replace=False))
    return drawn, len(rows) / most


@without_flags
def minimise(
    problem: Problem,
    start: Float64,
    size: int,
    tolerance: float,
    most: int,
    metric: Metric = hessian,
    *,
    sure: bool = False,
) -> Fit:
    """Return the least point: where the sum cannot fall by more than `tolerance` of itself.

    Steps are those of L-BFGS (Liu and Nocedal 1989) from the metric on. An older metric may be of rows that have a
    curvature no more, and then it makes little of what is left: to be `sure`, the metric of the place itself must say
    that little is left, and a step down it must find no more than that. Of a self-concordant loss the curvature of each
    row tells how far an older metric may be trusted, and the last step is not looked at where it will leave little.
    """
    place, since, converged = problem.at(start, size), 0, False
    pairs: list[tuple[Float64, Float64]] = []
    solve, made_at, before, earlier = metric(problem, place, size), place, np.inf, np.inf
    for step in range(most + 1):
        if since >= STALE:
            solve, made_at, since, pairs = metric(problem, place, size), place, 0, []
        direction = -_two_loops(place.gradient, pairs, solve)
        slope = float(place.gradient @ direction)
        left = -SURE * slope / 2 / place.value if place.value > 0 else 0.0  # no loss is below 0
        converged = left <= tolerance
        if step == most or (converged and not sure):
            break
        if sure and since and problem.loss.concordant:
            kept = problem.kept(made_at, place, size)
            if left <= kept * tolerance:
                break
            rate = max(left / before, before / earlier) if since > 1 else np.inf
            if left * rate <= AHEAD * kept * tolerance and rate <= FAST:
                return Fit(place.point + direction, step + 1, True)
        if converged and since:
            solve, made_at, since, pairs = metric(problem, place, size), place, 0, []
            direction = -solve(place.gradient)
            slope = float(place.gradient @ direction)
            converged = -SURE * slope / 2 <= tolerance * place.value
        next_place = _step(problem, place, direction, slope, size)
        if next_place is None:  # rounding is all that is left to find
            break
        last = converged and place.value - next_place.value <= tolerance * place.value
        pairs.append((next_place.point - place.point, next_place.gradient - place.gradient))
        place, since, before, earlier = next_place, since + 1, left, before
        if last:
            break
    return Fit(place.point, step, converged)


def _step(problem: Problem, place: Place, direction: Float64, slope: float, size: int) -> Place | None:
    """Return a place down a direction: the whole step where that goes far enough down, else by a search of the line."""
    trial = problem.at(place.point + direction, size)
    if trial.value < place.value and abs(float(trial.gradient @ direction)) <= -ENOUGH * slope:
        return trial
    line, unit = problem.along(place, trial, size), 1.0
    if not np.isfinite(trial.scores).all() or not line(0.0)[1] < 0:
        return None
    far = 1.0
    while not np.isfinite(line(far)[0]):
        far /= 4
    while line(far)[1] < CLOSE * slope and far < 2**30:
        far *= 2
    if line(far)[1] > -CLOSE * slope:
        unit, _ = optimize.brentq(lambda t: line(t)[1], 0.0, far, xtol=1e-12 * far, rtol=1e-2, full_output=True)
    else:
        unit = far
    while not line(unit)[0] < place.value:
        unit /= 4
        if unit < 1e-12:
            return None
    return problem.at(place.point + unit * direction, size)


def _two_loops(gradient: Float64, pairs: list[tuple[Float64, Float64]], solve: Solve) -> Float64:
    """Return the step of L-BFGS for pairs of steps and changes of the gradient."""
    left, kept = gradient.copy(), []
    for step, change in reversed(pairs):
        curvature = float(step @ change)
        if not curvature > 0:
            continue
        share = float(step @ left) / curvature
        left -= share * change
        kept.append((step, change, curvature, share))
    step_down = solve(left)
    for step, change, curvature, share in reversed(kept):
        step_down += (share - float(change @ step_down) / curvature) * step
    return step_down
