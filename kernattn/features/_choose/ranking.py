"""How maps are ranked: what is predicted of each, and what is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import NoClosedForm
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.sample import REDRAWS
from kernattn.features._choose.targets import Measured, Target, geometric_mean
from kernattn.features._exponential.asymmetric import AsymmetricExponential
from kernattn.features._moments.pairs import beyond
from kernattn.projections import Iid

STUDENT = {8: 2.365, 16: 2.131, 32: 2.040}  # 97.5 % quantile of Student's t by the number of redraws
MOST = 1e300  # stands for a squared error that is not finite
LOSS = 1.05  # of the squared error that a choice may cost: no more redraws where no rival can win as much


class Prediction(NamedTuple):
    """The predicted relative squared error; `of_iid` where it is that of iid frequencies instead."""

    error: float
    of_iid: bool


@beyond
def predict(phi: Any, target: Target) -> Prediction:
    """Predict variance plus squared bias, weighted as the target weighs entries of the kernel.

    They are those of iid frequencies where the projection's are unknown; infinite where these are too, and beyond the
    range of float64.
    """
    try:
        error, of_iid = _expected(phi, target), False
    except NoClosedForm:
        of_iid = True
        try:
            error = _expected(_of_iid(phi), target)
        except NoClosedForm:
            error = np.inf
    return Prediction(error if np.isfinite(error) else np.inf, of_iid)


def _of_iid(phi: Any) -> FeatureMap:
    if isinstance(phi, AsymmetricExponential):
        return replace(phi, inner=replace(phi.inner, projection=Iid()))
    of_iid: FeatureMap = replace(phi, projection=Iid())
    return of_iid


def _expected(phi: FeatureMap, target: Target) -> float:
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
def contest(
    maps: Mapping[str, FeatureMap], target: Target, seeds: Sequence[np.random.SeedSequence], decides: bool = True
) -> dict[str, Measurement]:
    r"""Return the typical relative error of each map's draws, :math:`\exp(\frac12 E \log e^2)`.

    It is the geometric mean: where signed features let a normaliser vanish, squared errors have no expectation, and
    where features are exponential a few redraws do not show it. Every map is redrawn by the same seeds, and as often;
    where this `decides`, until two standard errors of each difference from the least say that none is less
    by more than `LOSS`.
    """
    draws: dict[str, list[Measured]] = {name: [] for name in maps}
    for number in REDRAWS:
        for name, phi in maps.items():
            more = seeds[len(draws[name]) : number]
            draws[name] += [target.measured(phi.redraw(np.random.default_rng(seed))) for seed in more]
        if not decides or _decided([_logs([each.error for each in found]) for found in draws.values()]):
            break
    return {name: _measurement(found, target) for name, found in draws.items()}


def _decided(logs: Sequence[Float64]) -> bool:
    """Are the logarithms whose mean is least, (R,) each, less than all others, or about as small as they can be?"""
    least = min(logs, key=lambda each: float(np.mean(each)))
    differences = np.stack(logs) - least
    spread = np.std(differences, axis=-1, ddof=1) / np.sqrt(len(least))
    return bool((2 * spread - np.mean(differences, axis=-1) <= np.log(LOSS)).all())


def _measurement(draws: Sequence[Measured], target: Target) -> Measurement:
    student = STUDENT[len(draws)]
    error, spread = _typical([draw.error for draw in draws])
    low, high = (error * float(np.exp(sign * student * spread)) for sign in (-1, 1))
    lows = []
    for kind in zip(*(draw.over_uniform for draw in draws), strict=True):
        ratio, of_ratio = _typical(kind)
        lows.append(ratio * float(np.exp(-student * of_ratio)))
    over = None if target.uniform is None else min(lows, default=0.0)
    return Measurement(error, error * spread, low, high, over)


def _typical(squares: Sequence[float]) -> tuple[float, float]:
    """Return the root of the geometric mean, and the standard error of its logarithm."""
    if not all(squares):
        return 0.0, 0.0
    halves = _logs(squares) / 2
    return float(np.exp(np.mean(halves))), float(np.std(halves, ddof=1) / np.sqrt(len(halves)))


def _logs(squares: Sequence[float]) -> Float64:
    logs: Float64 = np.log(np.clip(squares, 1 / MOST, MOST))
    return logs
