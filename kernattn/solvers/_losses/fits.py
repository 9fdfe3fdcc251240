"""The least point of a loss, from that of some of the rows."""

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.units import in_units, unit_of
from kernattn.errors import ParameterError
from kernattn.solvers._losses.interior_point import minimise_pinball
from kernattn.solvers._losses.losses import Huber, Quantile
from kernattn.solvers._losses.quasi_newton import ROUGHLY, Fit, Problem, minimise, some_of
from kernattn.solvers._losses.units import penalty_in_units

SMOOTHLY = 1e-4  # tolerance of a quantile's smooth fit


def fit_one(problem: Problem, size: int, tolerance: float, most: int) -> Fit:
    """Return the least point for targets (n,), from that of some of the rows."""
    unit = unit_of(problem.y) if problem.loss.homogeneous else 1.0
    y, weights = in_units(problem.y, unit), problem.weights
    problem = problem._replace(penalty=penalty_in_units(problem.penalty, 1.0, unit), unit=problem.unit / unit)
    loss, begin = problem.loss.start(y, weights, problem.intercept)
    start = np.concatenate([np.zeros(size), [begin.intercept], begin.log_scale])
    if begin.alike:
        level = unit * begin.shift
        return Fit(np.concatenate([np.zeros(size), [level], np.full(len(begin.log_scale), -np.inf)]), 0, True)
    y = y - begin.shift
    problem = problem._replace(loss=loss, y=y, least=float(weights @ loss.least_of(y)))
    rows, share = some_of(np.flatnonzero(weights), size)
    if share > 1:
        start = minimise(_some(problem, rows, share), start, size, ROUGHLY, most).point
    if isinstance(loss, Quantile):
        smooth = minimise(problem, start, size, SMOOTHLY, most)
        fit = minimise_pinball(problem, smooth.point, size, tolerance, most)
    else:
        fit = minimise(problem, start, size, tolerance, most, sure=True)
    fit.point[size] += begin.shift
    with np.errstate(over="ignore", under="ignore"):
        fit.point[: size + 1] *= unit
    if not np.isfinite(fit.point[: size + 1]).all():
        raise ParameterError("y must be smaller: weights of the features are beyond float64")
    if isinstance(loss, Huber):
        fit.point[size + 1] = np.logaddexp(np.log(loss.least), fit.point[size + 1]) + np.log(unit)
    return fit


def _some(problem: Problem, rows: NDArray[np.intp], share: float) -> Problem:
    """Return the sum over some of the rows for where a fit begins, in float32 unless its numbers are too large."""
    try:
        with np.errstate(over="raise"):
            return problem.of_rows(rows, share, np.float32)
    except FloatingPointError:
        return problem.of_rows(rows, share)
