"""The least point of the logistic sum of one class, by Newton's steps, each from weighted moments."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, norm

from kernattn._arrays.namespaces import Float64, constant, namespace, to_numpy64, widest
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.solvers._labels import Blocks
from kernattn.solvers._spectrum import project
from kernattn.solvers._sums import moments

LEAST = 1e-10  # weight of a row in a Hessian, at least: the slope of a row that is far off is kept
HALVINGS = 40
DECREASE = 1e-4  # of what the slope promises: a step that brings less is halved (Armijo)


class LogisticLoss(NamedTuple):
    """The penalised sum over rows that a fit makes least."""

    phi: FeatureMap
    blocks: Blocks
    penalty: float
    intercept: bool
    backend: str | None
    shown: Any  # a bar, or None

    def at(self, point: Float64, label: Any) -> tuple[float, Float64, Float64]:
        """Return the sum, its gradient (M + 1,) and its Hessian at weights and an intercept, for one class."""
        loss, total = 0.5 * self.penalty * float(point[:-1] @ point[:-1]), None
        for x, y, weights in self.blocks():
            score = to_numpy64(project(self.phi, x, point[:-1, None], -point[-1:], self.backend))[:, 0]
            hit, chance = y == label, special.expit(score)
            share = np.ones(len(score)) if weights is None else weights
            loss += float(share @ np.logaddexp(0.0, np.where(hit, -score, score)))
            curvature = np.maximum(chance * special.expit(-score), LEAST)
            apart = np.where(hit, special.expit(-score), -chance) / curvature
            numbers = x.data if sparse.issparse(x) else x
            xp = namespace(x=numbers)
            values = [constant(xp, a, widest(xp, numbers), numbers) for a in (apart, share * curvature)]
            part = moments(x, self.phi, y=values[0], weights=values[1], backend=self.backend)
            total = part if total is None else total + part
        assert total is not None
        penalties = np.append(np.full(len(point) - 1, self.penalty), 0.0)
        gradient = penalties * point - np.append(total.cross[:, 0], total.y_sum)
        hessian = np.block([[total.gram, total.s[:, None]], [total.s[None, :], np.array([[total.weight]])]])
        if not self.intercept:
            gradient[-1], hessian[-1], hessian[:, -1], hessian[-1, -1] = 0.0, 0.0, 0.0, 1.0
        if self.shown is not None:
            self.shown.update()
        return loss, gradient, hessian + np.diag(penalties)


class Fit(NamedTuple):
    """Where Newton's steps ended."""

    point: Float64  # weights and intercept (M + 1,)
    steps: int
    converged: bool


def minimise(loss_of: LogisticLoss, label: Any, tolerance: float, most: int) -> Fit:
    """Return the least point of a class, by damped steps."""
    first = next(loss_of.blocks())[0]
    point = np.zeros(loss_of.phi.num_features_of(first.shape[1]) + 1)
    loss, gradient, hessian = loss_of.at(point, label)
    for step in range(1, most + 1):
        direction = -_solve(hessian, gradient, loss_of.penalty)
        slope = float(gradient @ direction)  # minus the square of Newton's decrement
        part = 1.0
        for _ in range(HALVINGS):
            here = point + part * direction
            at_here = loss_of.at(here, label)
            if at_here[0] <= loss + DECREASE * part * slope + 8 * float(np.finfo(float).eps) * loss:
                break
            part /= 2
        end = -slope <= tolerance * loss
        point, (loss, gradient, hessian) = here, at_here
        if end:
            return Fit(point, step, True)
    return Fit(point, most, False)


def _solve(hessian: Float64, gradient: Float64, penalty: float) -> Float64:
    """Return the inverse of the Hessian times the gradient, (M + 1,)."""
    try:
        step: Float64 = cho_solve(cho_factor(hessian, lower=True), gradient)
    except np.linalg.LinAlgError:
        rounding = float(np.finfo(float).eps * norm(hessian))
        raise ParameterError(
            f"penalty must be well above the rounding of the sums over rows, {rounding:.3g}; got {penalty:g}"
        ) from None
    return step
