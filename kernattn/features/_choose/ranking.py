"""How maps are ranked: what is predicted of each, and what is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, without_warnings
from kernattn.errors import NoClosedForm
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.sample import REDRAWS
from kernattn.features._choose.targets import Measured, Target, geometric_mean
from kernattn.features._exponential.asymmetric import AsymmetricExponential
from kernattn.projections import Iid

STUDENT = {
    8: 2.365,
    16: 2.131,
    32: 2.040,
    64: 1.998,
    128: 1.979,
    256: 1.969,
    512: 1.965,
}  # 97.5 % quantile of Student's t by the number of redraws
MOST = 1e300  # stands for a squared error that is not finite
LOSS = 1.05  # of the squared error that a choice may cost: no more redraws where no rival can win as much
SURE = 3.0  # standard errors by which a map is worse that is not redrawn any more


class Prediction(NamedTuple):
    """The predicted relative squared error; `of_iid` where it is that of iid frequencies instead."""

    error: float
    of_iid: bool


@without_warnings
def predict(phi: Any, target: Target) -> Prediction:
    """Predict variance plus squared bias, weighted as the target weighs entries of the kernel.

    They are those of iid frequencies where the projection's are unknown; infinite where these are too, and beyond the
    range of float64.
    """
    try:
        error, of_iid = _expected_error(phi, target), False
    except NoClosedForm:
        of_iid = True
        try:
            error = _expected_error(_of_iid(phi), target)
        except NoClosedForm:
            error = np.inf
    return Prediction(error if np.isfinite(error) else np.inf, of_iid)


def _of_iid(phi: Any) -> FeatureMap:
    if isinstance(phi, AsymmetricExponential):
        return replace(phi, inner=replace(phi.inner, projection=Iid()))
    if not (is_dataclass(type(phi)) and any(field.name == "projection" for field in fields(phi))):
        raise NoClosedForm(f"the frequencies of {type(phi).__name__} are not arranged by a projection that it holds")
    of_iid: FeatureMap = replace(phi, projection=Iid())
    return of_iid


def _expected_error(phi: FeatureMap, target: Target) -> float:
    squares: list[Float64] = [phi.variance(x, y) + phi.bias(x, y) ** 2 for x, y in target.sample.pairs()]
    return geometric_mean(np.sum(target.weights * np.concatenate(squares), axis=(-2, -1)))


class Measurement(NamedTuple):
    """A relative error over redraws, its standard error, a 95 % interval, and the low ends of those over uniform's."""

    error: float
    standard_error: float
    low: float
    high: float
    over_uniform_each: tuple[float, ...] | None


@without_warnings
def measure_until_decided(
    maps: Mapping[str, FeatureMap],
    target: Target,
    seeds: Sequence[np.random.SeedSequence],
    decides: bool = True,
    tells: bool = False,
) -> dict[str, Measurement]:
    r"""Return the typical relative error of each map's draws, :math:`\exp(\frac12 E \log e^2)`.

    It is the geometric mean: where signed features let a normaliser vanish, squared errors have no expectation, and
    where features are exponential a few redraws do not show it. Maps are redrawn by the same seeds; where this
    `decides`, until two standard errors of each difference from the least say that none is less by more than `LOSS`,
    and a map as long as three of them do not say that it is worse: it keeps its distance from the map that was least on
    the draws that they share. Draws of one map can differ tenfold, and maps whose errors differ by a half take hundreds
    to tell apart. Where this `tells` whether any map is better than uniform attention, more follow for that alone.
    """
    draws: dict[str, list[Measured]] = {name: [] for name in maps}
    alive, beaten = list(maps), dict[str, tuple[str, float]]()
    for number in REDRAWS:
        for name in alive:
            _redraw(draws[name], maps[name], target, seeds[:number])
        if not decides:
            break
        mean, spread = _distance_to_best([_logs([each.error for each in draws[name]]) for name in alive])
        if (2 * spread - mean <= np.log(LOSS)).all():
            break
        least = alive[int(np.argmin(mean))]
        beaten |= {n: (least, float(by)) for n, by, e in zip(alive, mean, spread, strict=True) if by > SURE * e}
        alive = [name for name in alive if name not in beaten]
    measured = {name: _measurement(each) for name, each in draws.items()}
    for name, (by, distance) in reversed(beaten.items()):
        if not 0 < measured[name].error < np.inf:
            continue  # some draws were exact: there is no ratio
        factor = measured[by].error * float(np.exp(distance / 2)) / measured[name].error
        error, deviation, low, high, _ = measured[name]
        measured[name] = Measurement(factor * error, factor * deviation, factor * low, factor * high, None)
    if target.uniform is None:
        return measured
    if tells:
        _compare_with_uniform(draws, maps, target, seeds)
    return {name: each._replace(over_uniform_each=_over_uniform(draws[name])[0]) for name, each in measured.items()}


def _redraw(draws: list[Measured], phi: FeatureMap, target: Target, seeds: Sequence[np.random.SeedSequence]) -> None:
    """Measure redraws of a map by the seeds that it has not had."""
    draws += [target.measure(phi.redraw(np.random.default_rng(seed))) for seed in seeds[len(draws) :]]


def _compare_with_uniform(
    draws: Mapping[str, list[Measured]],
    maps: Mapping[str, FeatureMap],
    target: Target,
    seeds: Sequence[np.random.SeedSequence],
) -> None:
    """Redraw maps that may be better than uniform attention, until one is for any kind of values, or none can be."""
    ends = {name: _over_uniform(each) for name, each in draws.items()}
    for number in REDRAWS:
        unsure = [name for name, (low, _) in ends.items() if any(end <= 1 for end in low)]
        if not unsure or any(end < 1 for _, high in ends.values() for end in high):
            break
        for name in unsure:
            _redraw(draws[name], maps[name], target, seeds[:number])
            ends[name] = _over_uniform(draws[name])


def _distance_to_best(logs: Sequence[Float64]) -> tuple[Float64, Float64]:
    """Return how far logarithms (R,) are above those whose mean is least, in the mean, and its standard errors."""
    differences = np.stack(logs) - min(logs, key=lambda each: float(np.mean(each)))
    return np.mean(differences, axis=-1), np.std(differences, axis=-1, ddof=1) / np.sqrt(differences.shape[-1])


def _measurement(draws: Sequence[Measured]) -> Measurement:
    error, spread = _typical([draw.error for draw in draws])
    (low,), (high,) = _ends([[draw.error for draw in draws]])
    return Measurement(error, error * spread, low, high, None)


def _over_uniform(draws: Sequence[Measured]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the intervals of the error over uniform attention's, for each kind of values."""
    return _ends(list(zip(*(draw.over_uniform for draw in draws), strict=True)))


def _ends(kinds: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the low and the high ends of 95 % intervals of the typical roots of squares, for each kind of them."""
    ends = []
    for squares in kinds:
        value, spread = _typical(squares)
        ends.append([value * float(np.exp(sign * STUDENT[len(squares)] * spread)) for sign in (-1, 1)])
    low, high = zip(*ends, strict=True) if ends else ((), ())
    return low, high


def _typical(squares: Sequence[float]) -> tuple[float, float]:
    """Return the root of the geometric mean, and the standard error of its logarithm."""
    if not all(squares):
        return 0.0, 0.0
    halves = _logs(squares) / 2
    return float(np.exp(np.mean(halves))), float(np.std(halves, ddof=1) / np.sqrt(len(halves)))


def _logs(squares: Sequence[float]) -> Float64:
    logs: Float64 = np.log(np.clip(squares, 1 / MOST, MOST))
    return logs
