"""The penalty of a logistic fit whose log loss on rows that were left out is least."""

from math import ceil, log10
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from kernattn._arrays.csr import take_rows
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._arrays.units import in_units
from kernattn._runtime.deprecated import warn_user
from kernattn.features import FeatureMap
from kernattn.solvers._check import features_of
from kernattn.solvers._digests import FOLDS, distinct_pairs
from kernattn.solvers._losses.softmax import NO_SLOPE, Coordinates, Labelled, Loss, by_widths, descend, judge, origin
from kernattn.solvers._losses.sweeps import times
from kernattn.solvers._losses.units import penalty_of_units, unit_of_features, unit_of_weights, untold_penalty

ROWS = 4096  # that a choice looks at
DISTINCT = 25  # rows that differ, below which folds tell nothing
HIGH, LOW = 2, -5  # powers of ten between which the penalties are
ROUGHLY, STEPS = 1e-3, 60  # how close the fits of a choice come
WORSE = 2  # powers of ten after the best, at which smaller ones are given up
NEARBY = 1.0  # powers of ten, over which a cautious choice averages losses
PART = 0.5  # of a standard error, by which it may lose
FALLING = 0.01  # of the loss a power of ten: where classes are apart it falls by more
SEEN = 1e-9  # of the largest eigenvalue: directions of less do not tell rows apart


class Fold(NamedTuple):
    """Rows of all other folds, and those left out."""

    others: Labelled
    left: Labelled


class Rotated(NamedTuple):
    """Rows in the eigenvectors of their covariance, and its eigenvalues."""

    rows: Labelled
    spread: Float64  # (r,), sums of squares of the columns


class Choice(NamedTuple):
    """The best penalty."""

    penalty: float
    loss: float  # the least mean log loss on rows left out: NaN where there are too few
    least: bool  # of all that were tried, and its loss still falls by FALLING from one power of ten to the next
    rows: int  # that differ, among those looked at
    held: Labelled | None = None  # of a cautious choice, the scores of rows left out: None where there are too few


def warn_of_least(choice: Choice) -> None:
    """Warn where the least penalty of all was taken."""
    if choice.least:
        end = f"the penalty that folds prefer is the least of its range, {choice.penalty:.3g}"
        warn_user(f"{end}: the classes seem apart", UserWarning)


def hold_out(
    x: Array,
    labels: NDArray[Any],
    shares: Float64 | None,
    phi: FeatureMap,
    classes: NDArray[Any],
    intercept: bool,
    backend: str | None = None,
    *,
    cautious: bool = False,
) -> Choice:
    """Return the best penalty among powers of the root of ten, in units of the features' mean squared norm.

    A cautious choice is the largest that is no worse than the best by more than half a standard error of the
    difference, where the losses of each are averaged with those of its neighbours.

    The powers begin with the weight of rows that differ, so that the unit of weights does not matter. At most 4,096
    pairs of a row and its label have a part, by digests, copies as weights; rows of weight 0 have none.
    """
    by_weights = 1.0 if shares is None else unit_of_weights(shares)
    weights = np.ones(x.shape[0]) if shares is None else in_units(shares, by_weights)
    codes = np.searchsorted(classes, labels)
    there, weights, digests = distinct_pairs(x, codes[:, None].astype(np.float64), weights, ROWS)
    codes = codes[there]
    features = to_numpy64(features_of(phi, take_rows(x, there), backend))
    by_features = unit_of_features(features)
    features = in_units(features, by_features)
    unit = float(np.einsum("nm,nm,n->", features, features, weights) / weights.sum())
    turned = rotate(features, codes, weights, intercept)
    count = len(classes)
    folds = _split(turned.rows, digests, count)
    different = len(np.unique(digests))
    if count < 2 or different < DISTINCT or len(folds) < 2 or not unit > 0:
        untold = untold_penalty(weights, by_weights, unit, features=by_features)
        return Choice(penalty_of_units(untold, by_weights, features=by_features), np.nan, False, different)
    share = float(weights.sum()) / different
    lowest = LOW - max(0, ceil(log10(share)))  # copies of rows tell more of them: less is a penalty, too
    tens = [share * 10.0**power for power in range(HIGH, lowest - 1, -1)]
    points = [origin(len(turned.spread), count)] * len(folds)
    shares_left = np.concatenate([fold.left.weights for fold in folds])
    shares_left = shares_left / shares_left.sum()
    losses: dict[float, Float64] = {}
    points_of: dict[float, list[Float64]] = {}

    def judge(penalty: float) -> list[Float64]:
        fits, losses[penalty] = _judge(turned, folds, points, penalty * unit, count, intercept)
        if cautious:
            points_of[penalty] = fits
        return fits

    def mean_loss(penalty: float) -> float:
        return float(shares_left @ losses[penalty])

    for penalty in tens:
        points = judge(penalty)
        best = min(losses, key=mean_loss)
        if penalty * 10**WORSE <= best * 1.01:
            break
    for penalty in (best * 10**0.5, best / 10**0.5):
        judge(penalty)
    best = min(losses, key=mean_loss)
    chosen = _most_cautious(losses, shares_left, different) if cautious else best
    held = _scores_of(folds, points_of[chosen], shares_left) if cautious else None
    penalty = penalty_of_units(chosen * unit, by_weights, features=by_features)
    falls = chosen <= tens[-1] and mean_loss(chosen) <= (1 - FALLING) * mean_loss(tens[-2])
    return Choice(penalty, mean_loss(best), falls, different, held)


def _most_cautious(losses: dict[float, Float64], shares: Float64, different: int) -> float:
    """Return the largest penalty within half a standard error of the best, of so many rows that differ.

    Losses are averages over penalties less than a power of ten away, with weights that fall linearly: the least of
    few rows is often a chance of one penalty.
    """
    penalties = np.array(list(losses))
    powers = np.log10(penalties)
    near = np.maximum(0.0, 1 - np.abs(powers[:, None] - powers) / NEARBY)
    averages = near / near.sum(axis=1, keepdims=True) @ np.stack(list(losses.values()))  # (P, n)
    more = averages - averages[np.argmin(averages @ shares)]
    means = more @ shares
    errors = np.sqrt((more - means[:, None]) ** 2 @ shares / different)
    return float(np.max(penalties[means <= PART * errors]))


def rotate(features: Float64, codes: NDArray[np.intp], weights: Float64, intercept: bool) -> Rotated:
    """Return rows in float32, less their mean where an intercept takes it up: penalties and fits stay the same."""
    centred = features - (weights @ features / weights.sum() if intercept else 0.0)
    half = centred * np.sqrt(weights)[:, None]
    tall = len(half) >= half.shape[1]
    values, vectors = eigh(half.T @ half if tall else half @ half.T)
    kept = values > SEEN * values[-1]
    spread, vectors = values[kept], vectors[:, kept]
    axes = vectors if tall else half.T @ vectors / np.sqrt(spread)
    return Rotated(Labelled((centred @ axes).astype(np.float32), codes, weights), spread)


def _judge(
    turned: Rotated, folds: list[Fold], points: list[Float64], penalty: float, classes: int, intercept: bool
) -> tuple[list[Float64], Float64]:
    """Return the fits to the others of each fold, from points nearby, and log losses of the rows left out."""
    fits, all_losses = [], []
    for (others, left), point in zip(folds, points, strict=True):
        loss = Loss([others], classes, penalty, intercept)
        point, _, _ = descend(loss, _widths(turned, others, penalty, point), point, ROUGHLY, STEPS)
        losses, _ = judge(times(left.features, point[:-1]) + point[-1], left.codes)
        fits.append(point)
        all_losses.append(losses)
    return fits, np.concatenate(all_losses)


def _scores_of(folds: list[Fold], fits: list[Float64], shares: Float64) -> Labelled:
    """Return the scores of the rows left out, fold by fold, in place of features."""
    left = [fold.left for fold in folds]
    scores = [times(rows.features, point[:-1]) + point[-1] for rows, point in zip(left, fits, strict=True)]
    return Labelled(np.concatenate(scores), np.concatenate([rows.codes for rows in left]), shares)


def _widths(turned: Rotated, others: Labelled, penalty: float, point: Float64) -> Coordinates:
    """Return coordinates that are round where the curvature of all rows is their mean."""
    _, chances = judge(times(others.features, point[:-1]) + point[-1], others.codes)
    curvature = float(others.weights @ np.mean(chances * (1 - chances), axis=1)) / float(turned.rows.weights.sum())
    curvature = curvature or NO_SLOPE
    total = np.append(turned.spread, turned.rows.weights.sum())
    return by_widths(1 / np.sqrt(curvature * total + np.append(np.full(len(turned.spread), penalty), 0.0))[:, None])


def _split(rows: Labelled, digests: NDArray[np.uint64], classes: int) -> list[Fold]:
    """Return the folds whose other rows have all classes."""
    of, folds = digests % np.uint64(FOLDS), []
    for fold in range(FOLDS):
        left = of == fold
        if left.any() and len(np.unique(rows.codes[~left])) == classes:
            folds.append(Fold(*(Labelled(*(each[which] for each in rows)) for which in (~left, left))))
    return folds
