"""Losses of one score a row: their values, slopes and curvatures, and where fits begin."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.solvers._check import refuse

LEAST_SCALE = 1e-6  # of the targets' mean deviation from their median: residuals of less are none
BROAD = 2.0  # times that deviation: the scale from which Huber's loss begins, within which most rows are
WIDE = 0.1  # of that deviation: the band of a quantile
TAIL = 10.0  # median deviations, which a mean deviation is no more than
LARGE = 2.0**900  # targets whose sums may be beyond float64
FAR = 30.0  # deviations, from which on a target pulls as any farther one would


class Judged(NamedTuple):
    """What a loss says of rows; `by_log_scale` where it has a scale of its own, else 0."""

    losses: Float64  # (n,)
    slopes: Float64  # (n,), by the score
    curvatures: Float64  # (n,)
    by_log_scale: Float64 | float = 0.0  # (n,), slopes by the logarithm of the scale
    beside: Float64 | None = None  # (n,), where features have 1 for an intercept, this is for the logarithm


class Start(NamedTuple):
    """Where a fit begins: what is taken off the targets, an intercept, and the logarithm of a scale or nothing."""

    shift: float
    intercept: float
    log_scale: Float64  # (0,) or (1,)
    alike: bool = False  # whether all targets are the shift


class Loss(ABC):
    """A loss that is convex in the score."""

    concordant: ClassVar[bool] = False  # whether the curvature changes, by a unit of the score, by a factor at most
    homogeneous: ClassVar[bool] = True  # whether scores and targets that are twice as large lose twice as much

    def check(self, y: Float64) -> None:  # noqa: B027
        """Raise where targets are outside of its range; most take all."""

    @abstractmethod
    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Return the loss for these targets, and where a fit to them begins."""

    def least_of(self, y: Float64) -> Float64:
        """Return what `judge` leaves out of the losses (n,): it makes them 0 at the least."""
        return np.zeros(len(y))

    def bring_near(self, y: Float64, weights: Float64, intercept: bool) -> Float64:
        """Return targets of which far ones are nearer, where the loss is a line: the least point is the same.

        So is what tells it, beside losses as large as those targets. It is another point only where scores come within
        `reach_of` of such a target.
        """
        return y

    def reach_of(self, scale: float) -> float:
        """Return the residual from which on the loss is a line, with a scale of its own or NaN."""
        return 0.0

    @abstractmethod
    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return losses of scores and their derivatives."""


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y f)^2 of labels 1 and -1."""

    homogeneous = False

    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Begin at the mean label."""
        return self, Start(0.0, float(np.average(y, weights=weights)) if intercept else 0.0, np.zeros(0))

    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return losses and their derivatives."""
        short = np.maximum(1.0 - y * scores, 0.0)
        return Judged(short * short, -2 * y * short, np.where(short > 0, 2.0, 0.0))


@dataclass(frozen=True)
class LogLoss(Loss):
    """log(1 + e^(-y f)) of labels 1 and -1."""

    concordant = True
    homogeneous = False

    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Begin at the log odds."""
        sums = np.array([weights[y < 0].sum(), weights[y > 0].sum()])
        odds = np.diff(np.log(np.maximum(sums, np.finfo(float).tiny)))
        return self, Start(0.0, float(odds[0]) if intercept else 0.0, np.zeros(0))

    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return losses and their derivatives."""
        margin = y * scores
        with np.errstate(under="ignore"):
            part = np.exp(-np.abs(margin))
            both = 1 + part
            chances = np.where(margin > 0, part, 1.0) / both  # of the other label
            return Judged(np.log1p(part) + np.maximum(-margin, 0.0), -y * chances, part / (both * both))


@dataclass(frozen=True)
class Poisson(Loss):
    """Half the deviance of counts, e^f - y f - (y - y log y); `least_of` is what is in brackets."""

    concordant = True
    homogeneous = False

    def check(self, y: Float64) -> None:
        """Raise where a count is negative, or all are 0."""
        if np.min(y) < 0:
            refuse("y must be 0 or more for loss='poisson'", np.flatnonzero(y < 0), "less")
        if not y.any():
            raise ParameterError("y must not be 0 in all rows for loss='poisson': the fit would be at minus infinity")

    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Begin at the mean."""
        mean = max(float(np.average(y, weights=weights)), float(np.finfo(float).tiny))
        return self, Start(0.0, float(np.log(mean)) if intercept else 0.0, np.zeros(0))

    def least_of(self, y: Float64) -> Float64:
        """Return y log y - y."""
        rest: Float64 = special.xlogy(y, y) - y
        return rest

    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return losses and their derivatives."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            mean = np.exp(scores)
            return Judged(mean - y * scores, mean - y, mean)


@dataclass(frozen=True)
class Huber(Loss):
    r"""Huber's proposal 2, :math:`\sigma + \sigma H(r / \sigma)`; H(z) is z^2, and beyond epsilon a line.

    The scale is sigma = least + e^t: the sum is convex in sigma, and has one least point in t.
    """

    epsilon: float
    least: float = 0.0

    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Begin at the median, with the mean deviation from it."""
        shift, spread = _spread(y, weights, 0.5, intercept)
        return replace(self, least=LEAST_SCALE * spread), Start(shift, 0.0, np.log([BROAD * spread or 1.0]), not spread)

    def bring_near(self, y: Float64, weights: Float64, intercept: bool) -> Float64:
        """Return targets within so many deviations of their median."""
        return bring_near(y, weights, 0.5, intercept)

    def reach_of(self, scale: float) -> float:
        """Return epsilon times the scale."""
        return self.epsilon * scale

    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return losses and their derivatives."""
        part = float(np.exp(log_scale[0]))
        scale = self.least + part
        z = (y - scores) / scale
        size = np.abs(z)
        near = np.minimum(size, self.epsilon)
        inside = size < self.epsilon
        with np.errstate(over="ignore"):  # squares of residuals far above the scale, where epsilon lets them be
            losses, by_log_scale = scale * (1 + near * (2 * size - near)), part * (1 - near * near)
        return Judged(losses, -2 * np.copysign(near, z), inside * np.float64(2 / scale), by_log_scale, part * z)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss max(q r, (q - 1) r) of r = y - f, above its band: there it is r^2 / 2 width."""

    quantile: float
    width: float = 1.0

    def start(self, y: Float64, weights: Float64, intercept: bool) -> tuple[Self, Start]:
        """Begin at the quantile."""
        shift, spread = _spread(y, weights, self.quantile, intercept)
        return replace(self, width=WIDE * spread), Start(shift, 0.0, np.zeros(0), not spread)

    def bring_near(self, y: Float64, weights: Float64, intercept: bool) -> Float64:
        """Return targets within so many deviations of their quantile."""
        return bring_near(y, weights, self.quantile, intercept)

    def judge(self, scores: Float64, y: Float64, log_scale: Float64) -> Judged:
        """Return smooth losses and their derivatives."""
        r = y - scores
        slopes = np.clip(r / self.width, self.quantile - 1, self.quantile)
        inside = (slopes > self.quantile - 1) & (slopes < self.quantile)
        return Judged(slopes * (r - self.width / 2 * slopes), -slopes, inside / self.width)


def bring_near(y: Float64, weights: Float64 | None, quantile: float, intercept: bool, far: float = FAR) -> Float64:
    """Return targets within so many deviations of a quantile, or of 0 without an intercept."""
    unit = 2.0**64 if np.max(np.abs(y)) > LARGE else 1.0
    at, deviation = _spread(y / unit, weights, quantile, intercept)
    with np.errstate(over="ignore"):
        low, high = np.multiply((at - far * deviation, at + far * deviation), unit)
    return np.clip(y, low, high)


def _spread(y: Float64, weights: Float64 | None, quantile: float, intercept: bool) -> tuple[float, float]:
    """Return a quantile of targets, or 0 without an intercept, and their deviation from it.

    It is the mean deviation, unless a few wild targets make that far more than the median of those that differ.
    """
    at = float(np.quantile(y, quantile, weights=weights, method="inverted_cdf")) if intercept else 0.0
    away = np.abs(y - at)
    mean, some = float(np.average(away, weights=weights)), away > 0
    if weights is not None:
        some, weights = some & (weights > 0), weights[some & (weights > 0)]
    if not some.any():
        return at, mean
    return at, min(mean, TAIL * float(np.quantile(away[some], 0.5, weights=weights, method="inverted_cdf")))
