"""The penalty of a linear model whose loss on rows that were left out is least."""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import take_rows
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.deprecated import warn_user
from kernattn.features import FeatureMap
from kernattn.solvers._check import features_of
from kernattn.solvers._digests import FOLDS, distinct_pairs
from kernattn.solvers._losses.logistic_penalty import DISTINCT, ROUGHLY, ROWS, WORSE, rotate
from kernattn.solvers._losses.losses import Loss
from kernattn.solvers._losses.quasi_newton import NO_SLOPE, Place, Problem, Solve, minimise
from kernattn.solvers._losses.sweeps import Held
from kernattn.solvers._losses.units import penalty_of_units, unit_of_features, unit_of_weights, untold_penalty

STEPS = 30
HIGH, LOW = 2, -7  # powers of ten between which the penalties are, in units of the features and the loss


class Fold(NamedTuple):
    """The sum over the rows of all other folds, and the rows left out."""

    others: Problem
    left: Problem


def choose_penalty(
    x: Array,
    targets: list[Float64],
    weights: Float64,
    phi: FeatureMap,
    loss: Loss,
    intercept: bool,
    backend: str | None,
) -> float:
    """Return the best penalty among powers of ten and the roots of ten beside it; warn where it is the least.

    Their unit is the features' mean squared norm times the curvature of the loss where fits begin. At most 4,096
    pairs of a row and its targets have a part, by digests, copies as weights; rows of weight 0 have none.
    """
    by_weights = unit_of_weights(weights)
    there, shares, digests = distinct_pairs(x, np.stack(targets, axis=1), in_units(weights, by_weights), ROWS)
    by_targets = unit_of(np.stack(targets)) if loss.homogeneous else 1.0
    targets = [in_units(y, by_targets) for y in targets]
    features = to_numpy64(features_of(phi, take_rows(x, there), backend))
    by_features = unit_of_features(features)
    features = in_units(features, by_features)
    turned = rotate(features, np.zeros(len(there), np.intp), shares, intercept)
    norm = float(np.einsum("nm,nm,n->", features, features, shares) / shares.sum())
    different, size = len(np.unique(digests)), len(turned.spread)
    whole = Problem(Held(turned.rows.features.astype(np.float64)), np.zeros(0), shares, loss, 1.0, intercept)
    folds: list[Fold] = []
    starts: list[Float64] = []
    curvatures = []
    for y in targets:
        made, begin = loss.start(y[there], shares, intercept)
        start = np.concatenate([np.zeros(size), [begin.intercept], begin.log_scale])
        if begin.alike:
            continue
        problem = whole._replace(y=y[there] - begin.shift, loss=made)
        curvatures.append(_mean_curvature(problem, problem.at(start, size), size))
        each = _split(problem, digests)
        folds, starts = folds + each, starts + [start] * len(each)
    curvature = float(np.mean(curvatures)) if curvatures else 0.0
    if different < DISTINCT or len(folds) < 2 or not norm * curvature > 0:
        of_targets = (loss.homogeneous and curvature) or 1.0
        untold = untold_penalty(shares, by_weights, norm * curvature, of_targets, by_features)
        return penalty_of_units(untold, by_weights, by_targets, by_features)
    unit = norm * curvature * float(shares.sum()) / different
    counts = np.concatenate([fold.left.weights for fold in folds])
    losses: dict[float, Float64] = {}

    def judge(penalty: float) -> None:
        fits, losses_left = [], []
        for fold, start in zip(folds, starts, strict=True):
            others = fold.others._replace(penalty=penalty * unit)
            point = minimise(others, start, size, ROUGHLY, STEPS, partial(_widths, turned.spread / shares.sum())).point
            fits.append(point)
            scores = fold.left.at(point, size).scores
            loss, y = fold.left.loss, fold.left.y
            losses_left.append(loss.judge(scores, y, point[size + 1 :]).losses + loss.least_of(y))
        starts[:], losses[penalty] = fits, np.concatenate(losses_left)

    def least_of(losses: dict[float, Float64]) -> float:
        """Return the largest penalty that is as good as the best but for what fits leave."""
        means = {penalty: float(counts @ each) for penalty, each in losses.items()}
        least = min(means.values())
        return max(penalty for penalty, mean in means.items() if mean <= least + ROUGHLY * abs(least))

    tens = [10.0**power for power in range(HIGH, LOW - 1, -1)]
    for penalty in tens:
        judge(penalty)
        if penalty * 10**WORSE <= least_of(losses) * 1.01:
            break
    best = least_of(losses)
    for power in (0.5, -0.5):
        judge(best * 10**power)
    best = least_of(losses)
    chosen = penalty_of_units(best * unit, by_weights, by_targets, by_features)
    if best <= tens[-1]:
        end = f"the penalty that folds prefer is the least of its range, {chosen:.3g}"
        warn_user(f"{end}: the targets seem to have no noise", UserWarning)
    return chosen


def _split(problem: Problem, digests: NDArray[np.uint64]) -> list[Fold]:
    """Return the folds whose other rows have targets that differ."""
    folds = []
    for fold in range(FOLDS):
        left = digests % np.uint64(FOLDS) == fold
        if 0 < np.sum(left) < len(left) and np.ptp(problem.y[~left]) > 0:
            folds.append(Fold(*(problem.of_rows(np.flatnonzero(at)) for at in (~left, left))))
    return folds


def _mean_curvature(problem: Problem, place: Place, size: int) -> float:
    """Return the mean of the curvatures of rows by their scores."""
    curvatures = problem.loss.judge(place.scores, problem.y, place.point[size + 1 :]).curvatures
    return float(problem.weights @ curvatures / problem.weights.sum())


def _widths(spread: Float64, problem: Problem, place: Place, size: int) -> Solve:
    """Return a division by the Hessian of features of a variance each, independent of the curvature of rows."""
    judged = problem.loss.judge(place.scores, problem.y, place.point[size + 1 :])
    curvature = problem.weights * judged.curvatures
    total = float(curvature.sum()) or NO_SLOPE * float(problem.weights.sum())
    diagonal = np.append(total * spread + problem.penalty, total if problem.intercept else 1.0)
    if judged.beside is not None:
        diagonal = np.append(diagonal, float(curvature @ judged.beside**2) + NO_SLOPE * place.value)
    return lambda gradient: gradient / diagonal
