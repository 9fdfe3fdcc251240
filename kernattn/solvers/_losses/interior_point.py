"""The least point of a pinball sum: an interior point method on the rows near the fit, whose gap is certified."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from kernattn._arrays.namespaces import Float64, namespace, without_flags
from kernattn.solvers._losses.losses import Quantile
from kernattn.solvers._losses.quasi_newton import Fit, Problem
from kernattn.solvers._losses.sweeps import times

FEW, MANY = 2048, 4  # rows that are near at least, and as many times the features
BANDS = 2.0  # widths of the smooth loss: rows that are nearer may change sides
SHORT = 0.99995  # of the way to the bound
INSIDE = 0.02  # of the box, that a start is away from its ends
ITERATIONS = 60
NEAREST = 1e-13  # of the box, or of the mean residual: no nearer to the bounds, so that many ties do no harm
ROUNDING = 1e-15  # of the sum: gaps of less are not told from none
ROUNDS = 20
LIGHT, MOST = 1e-10, 0.9  # of the weight that this part of rows has at most: of less, a row is next to nothing


class Near(NamedTuple):
    """The sum over some rows, and the gradient that all others, which keep their sides, give."""

    features: Float64  # (k, M + 1): 1 beside the features, for an intercept, else 0
    y: Float64  # (k,)
    low: Float64  # (k,), the box of the dual numbers a
    high: Float64
    others: Float64  # (M + 1,), the sum of their features times their dual numbers
    penalty: Float64  # (M + 1,)
    unit: float  # of targets


@without_flags
def minimise_pinball(problem: Problem, start: Float64, size: int, tolerance: float, most: int) -> Fit:
    """Return the least point of the pinball sum, from that of a smooth one.

    Rows that are far from the fit keep their sides (Portnoy and Koenker 1997), and so do those of next to no weight,
    whose narrow box takes many steps; those that do not come near.
    """
    loss, point = problem.loss, start
    assert isinstance(loss, Quantile)
    low, high = problem.weights * (loss.quantile - 1), problem.weights * loss.quantile
    counted = problem.weights > 0
    heavy = problem.weights > LIGHT * np.quantile(problem.weights[counted], MOST, method="lower")
    scores = problem.at(point, size).scores
    rest = problem.y - scores
    smooth = problem.weights * np.clip(rest / loss.width, loss.quantile - 1, loss.quantile)
    last = min(max(FEW, MANY * size), len(rest)) - 1
    closest = np.partition(np.where(heavy, np.abs(rest), np.inf), last)
    reach = max(BANDS * loss.width, float(closest[last]))
    near = heavy & (np.abs(rest) <= reach)
    steps = 0
    for _ in range(ROUNDS):
        dual = np.where(near, smooth, np.where(rest > 0, high, low))
        rows = np.flatnonzero(near)
        held = _gather(problem, rows, np.where(near, 0.0, dual), size, low, high)
        point, dual[rows], more = _follow(held, point, dual[rows], tolerance, most - steps)
        steps += more
        scores = problem.at(point, size).scores
        rest = problem.y - scores
        pinball = np.maximum(high * rest, low * rest)
        value = float(pinball.sum()) + problem.penalty / 2 * float(point[:size] @ point[:size])
        total = held.others + held.features.T @ dual[rows]
        off = problem.penalty * point[:size] - total[:size]
        gap = float(np.sum(pinball - dual * rest)) + float(off @ off) / (2 * problem.penalty)
        gap += abs(float(point[size] * total[size])) if problem.intercept else 0.0
        wrong = counted & ~near & (dual * rest < 0)
        if gap <= tolerance * value or not wrong.any() or steps >= most:
            break
        smooth, reach = dual, 2 * reach
        near |= wrong | (heavy & (np.abs(rest) <= reach))
    return Fit(point, steps, bool(gap <= tolerance * value))


def _gather(problem: Problem, rows: NDArray[np.intp], dual: Float64, size: int, low: Float64, high: Float64) -> Near:
    """Return the rows that are near, and what the dual numbers of all others sum to."""
    others = np.zeros(size + 1)
    if len(rows) < len(dual):
        for here, features in problem.rows.parts():
            others[:size] += times(namespace(features=features).matrix_transpose(features), dual[here])
    others[size] = dual.sum() if problem.intercept else 0.0
    beside = np.full((len(rows), 1), 1.0 if problem.intercept else 0.0)
    features = np.concatenate([problem.rows.take(rows), beside], axis=1)
    penalty = np.append(np.full(size, problem.penalty), 0.0 if problem.intercept else 1.0)
    return Near(features, problem.y[rows], low[rows], high[rows], others, penalty, problem.loss.width)  # type: ignore[attr-defined]


def _follow(near: Near, point: Float64, dual: Float64, tolerance: float, most: int) -> tuple[Float64, Float64, int]:
    r"""Return the point and the dual numbers at the end of the central path, by Mehrotra's steps (1992).

    With u - v = y - f and u, v >= 0, they are where (high - a) u = 0, (a - low) v = 0 and
    :math:`\lambda w = \sum_i a_i \phi_i`.
    """
    features, y, low, high, others, penalty, unit = near
    room = INSIDE * (high - low)
    a = np.clip(dual, low + room, high - room)
    rest = y - features @ point
    unit = max(float(np.mean(np.abs(rest))), unit)
    u, v = np.maximum(rest, 0) + INSIDE * unit, np.maximum(-rest, 0) + INSIDE * unit
    for step in range(min(ITERATIONS, most)):
        s, t = high - a, a - low
        rest = y - features @ point
        slack, off = rest - u + v, others + features.T @ a - penalty * point
        products = float(s @ u + t @ v)
        value = float(np.maximum(high * rest, low * rest).sum()) + float(penalty @ point**2) / 2 - others @ point
        small = tolerance / 5 * (abs(value) + abs(float(others @ point)))
        beyond = float(off[:-1] @ off[:-1]) / (2 * penalty[0]), abs(float(off[-1] * point[-1]))
        gaps = products, float(np.abs(slack) @ np.maximum(high, -low)), *beyond
        if max(gaps) <= small or products <= ROUNDING * small / tolerance:
            return point, a, step
        try:
            system = _System(features, (s, t, u, v), slack, off, penalty)
        except np.linalg.LinAlgError:  # rounding is all that is left to find: the gap says how near this is
            return point, a, step
        zero = np.zeros_like(a)
        _, da, du, dv = system.solve(zero, zero)
        there = min(_room(s, -da), _room(t, da)), min(_room(u, du), _room(v, dv))
        ahead = float((s - there[0] * da) @ (u + there[1] * du) + (t + there[0] * da) @ (v + there[1] * dv))
        aim = products / (2 * len(a)) * (ahead / products) ** 3
        dw, da, du, dv = system.solve(aim + da * du, aim - da * dv)
        far = min(1.0, SHORT * min(_room(s, -da), _room(t, da), _room(u, du), _room(v, dv)))
        point, a = point + far * dw, a + far * da
        a = np.clip(a, low + NEAREST * (high - low), high - NEAREST * (high - low))
        u, v = np.maximum(u + far * du, NEAREST * unit), np.maximum(v + far * dv, NEAREST * unit)
    return point, a, min(ITERATIONS, most)


class _System:
    """The linear equations of a step, of s = high - a, t = a - low, u and v."""

    def __init__(
        self, features: Float64, sides: tuple[Float64, ...], slack: Float64, off: Float64, penalty: Float64
    ) -> None:
        self.features, self.sides, self.slack, self.off = features, sides, slack, off
        s, t, u, v = sides
        self.q = 1 / (u / s + v / t)
        matrix = (features * self.q[:, None]).T @ features
        np.fill_diagonal(matrix, np.diagonal(matrix) + penalty)
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, by_u: Float64, by_v: Float64) -> tuple[Float64, Float64, Float64, Float64]:
        """Return steps of the point, of a, u and v that bring s u and t v to the numbers given."""
        s, t, u, v = self.sides
        bring = self.slack - (by_u / s - u) + (by_v / t - v)
        dw = cho_solve(self.factor, self.off + self.features.T @ (self.q * bring), check_finite=False)
        da = self.q * (bring - self.features @ dw)
        return dw, da, (by_u + u * da) / s - u, (by_v - v * da) / t - v


def _room(values: Float64, steps: Float64) -> float:
    """Return how much of the steps leaves positive numbers positive, 1 at most."""
    falls = steps < 0
    return min(1.0, float(np.min(-values[falls] / steps[falls], initial=np.inf)))
