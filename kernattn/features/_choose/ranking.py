"""How maps are ranked: what is predicted of each, and what is measured."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import NoClosedForm
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.targets import Target, geometric_mean
from kernattn.features._moments.pairs import beyond
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.projections import Iid

STUDENT = 2.365  # 97.5 % quantile of Student's t with REDRAWS - 1 = 7 degrees of freedom
MOST = 1e300  # stands for a squared error that is not finite


class Prediction(NamedTuple):
    """The predicted relative squared error; `of_iid` where it is that of iid frequencies instead."""

    error: float
    of_iid: bool


@beyond
def predict(phi: RandomFeatureMap, target: Target) -> Prediction:
    """Predict variance plus squared bias, weighted as the target weighs entries of the kernel.

    They are those of iid frequencies where the projection's are unknown; infinite where these are too, and beyond the
    range of float64.
    """
    try:
        error, of_iid = _expected(phi, target), False
    except NoClosedForm:
        of_iid = True
        try:
            error = _expected(replace(phi, projection=Iid()), target)
        except NoClosedForm:
            error = np.inf
    return Prediction(error if np.isfinite(error) else np.inf, of_iid)


def _expected(phi: RandomFeatureMap, target: Target) -> float:
    squares: list[Float64] = [phi.variance(x, y) + phi.bias(x, y) ** 2 for x, y in target.sample.pairs()]
    return geometric_mean(np.sum(target.weights * np.concatenate(squares), axis=(-2, -1)))


class Measurement(NamedTuple):
    """A relative error over redraws, its standard error, a 95 % interval, and the low end of that over uniform's."""

    error: float
    standard_error: float
    low: float
    high: float
    over_uniform: float | None


@beyond
def measure(phi: FeatureMap, target: Target, seeds: Sequence[np.random.SeedSequence]) -> Measurement:
    r"""Return the typical relative error of a map's draws, :math:`\exp(\frac12 E \log e^2)`.

    It is the geometric mean: where signed features let a normaliser vanish, squared errors have no expectation, and
    where features are exponential a few redraws do not show it. The interval is Student's, of the logarithms.
    """
    draws = [target.measured(phi.redraw(np.random.default_rng(seed))) for seed in seeds]
    error, spread = _typical([draw.error for draw in draws])
    low, high = (error * float(np.exp(sign * STUDENT * spread)) for sign in (-1, 1))
    lows = []
    for kind in zip(*(draw.over_uniform for draw in draws), strict=True):
        ratio, of_ratio = _typical(kind)
        lows.append(ratio * float(np.exp(-STUDENT * of_ratio)))
    over = None if target.uniform is None else min(lows, default=0.0)
    return Measurement(error, error * spread, low, high, over)


def _typical(squares: Sequence[float]) -> tuple[float, float]:
    """Return the root of the geometric mean, and the standard error of its logarithm."""
    if not all(squares):
        return 0.0, 0.0
    halves = np.log(np.minimum(squares, MOST)) / 2
    return float(np.exp(np.mean(halves))), float(np.std(halves, ddof=1) / np.sqrt(len(halves)))
