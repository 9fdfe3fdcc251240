"""How often an estimate of the softmax kernel is far off: shares over many redraws, beside the bounds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn._warmup import preparation
from kernattn.features import ESTIMATORS, random_features
from kernattn.kernels import Softmax
from kernattn.metrics import proportion_and_ci
from kernattn.studies._presets.preset import Options
from kernattn.studies._records import with_ends
from kernattn.studies._sweep import Cell, Sweep

KERNEL = Softmax(1.0)
LENGTHS = (0.5, 1.0, 1.5)
EPSILONS = (0.25, 0.5, 0.75, 1.0, 2.0)
FREQUENCIES = 16384  # of one redraw, cut into as many estimates as they make
COMPARED = ("trigonometric", "positive", "hyperbolic")  # terms of which the law is known here


def sweep(**asked: Any) -> Sweep:
    """Return the design: a pair at a right angle for each length, and whole sets of estimates at each redraw."""
    options = Options(**asked)
    full = {"estimator": COMPARED, "projection": ("iid", "orthogonal"), "d": (16,), "m": (16, 32, 64, 128, 256)}

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        errors = _errors(cell, rng)[..., None]
        return {"upper": np.sum(errors > EPSILONS, axis=1), "lower": np.sum(errors < -np.array(EPSILONS), axis=1)}

    def facts(cell: Cell) -> dict[str, Any]:
        x, y = _inputs(cell["d"])
        phi = random_features(KERNEL, cell["d"], cell["m"], cell["estimator"], cell["projection"], rng=0)
        relative = phi.variance(x, y) / KERNEL.pairs(x, y) ** 2
        alone = cell["projection"] == "iid"
        bounds = _bounds(cell["estimator"], _frequencies(cell)) if alone else dict.fromkeys(BOUNDS)
        where = f"{cell['estimator']} features, d {cell['d']}"
        return {
            "where": where,
            "estimates": _sets(cell)[0],
            "chebyshev": relative[:, None] / np.square(EPSILONS),
            **bounds,
        }

    chosen = options.choose_axes(full, {"m": (16, 64)}, {"estimator": COMPARED})
    return Sweep(
        "tails",
        chosen,
        trial,
        facts,
        paired=("estimator", "projection", "m"),
        along={"length": LENGTHS, "epsilon": EPSILONS},
        stop=options.stop(256, 16, of="either"),
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features",)),
    )


def _inputs(d: int) -> tuple[Float64, Float64]:
    """Return pairs (L, d) at a right angle, of which SM is 1: ``|x - y|`` and ``|x + y|`` are alike."""
    frame = np.stack([np.ones(d), np.resize([1.0, -1.0], d)]) / np.sqrt(d)
    frame[1] -= (frame[1] @ frame[0]) * frame[0]
    x, y = np.asarray(LENGTHS)[:, None] * frame[:, None] / np.linalg.norm(frame, axis=1)[:, None, None]
    return x, y


def _frequencies(cell: Cell) -> int:
    """Return how many frequencies make m features."""
    return int(cell["m"]) // 2 if ESTIMATORS[cell["estimator"]].paired else int(cell["m"])


def _sets(cell: Cell) -> tuple[int, int]:
    """Return how many estimates a redraw has, and of how many frequencies, whole blocks, each takes its own."""
    rows = -(-_frequencies(cell) // cell["d"]) * cell["d"]
    return max(FREQUENCIES // rows, 1), rows


def _errors(cell: Cell, rng: np.random.Generator) -> Float64:
    """Return relative errors (L, E) of E independent estimates: blocks of frequencies do not depend on each other."""
    (count, rows), (x, y) = _sets(cell), _inputs(cell["d"])
    features = count * rows * (2 if ESTIMATORS[cell["estimator"]].paired else 1)
    phi = random_features(KERNEL, cell["d"], features, cell["estimator"], cell["projection"], rng=rng)
    terms = (phi(x) * phi(y)).reshape(len(LENGTHS), -1, count, rows).sum(axis=1) * (count * rows)
    estimates = terms[..., : _frequencies(cell)].mean(axis=-1)
    return np.asarray(estimates / KERNEL.pairs(x, y)[:, None] - 1)


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shares of estimates above, below and either, with the intervals of Clopper and Pearson."""
    hits = {side: np.sum(draws[side], axis=0) for side in ("upper", "lower")}
    hits["either"] = hits["upper"] + hits["lower"]
    trials = len(draws["upper"]) * facts["estimates"]
    fields: dict[str, Any] = {}
    for side, count in hits.items():
        fields |= with_ends(side, proportion_and_ci(count, trials))
    return fields


BOUNDS = ("upper_chernoff", "lower_chernoff", "hoeffding", "upper_jump")


def _bounds(estimator: str, count: int) -> dict[str, Any]:
    """Return the proved bound (L, E) of a mean of independent terms X with E X = 1; None where there is none.

    A term is a function of one normal number u, of variance ``2 length^2``: cos u, e^u or cosh u over its mean.
    Chernoff's bound is the least ``E exp(t X)^m exp(-t a)^m`` over a grid of t, each of which is a bound. Upwards, for
    terms that are exponentials of u, E exp(t X) is infinite, and one large term alone has at least the probability
    `upper_jump`.
    """
    bounds: dict[str, Any] = dict.fromkeys(BOUNDS)
    width = np.sqrt(2) * np.asarray(LENGTHS)[:, None]
    u = np.linspace(-12, 12, 2001) * width
    weights = -((u / width) ** 2) / 2
    weights -= special.logsumexp(weights, axis=1, keepdims=True)
    bounded = estimator == "trigonometric"
    log_mean = (-1 if bounded else 1) * width**2 / 2
    term = {"trigonometric": np.cos, "positive": np.exp, "hyperbolic": np.cosh}[estimator](u) * np.exp(-log_mean)
    epsilon = np.asarray(EPSILONS)
    bounds["lower_chernoff"] = _chernoff(-term, weights, epsilon - 1, count)
    if bounded:
        bounds["upper_chernoff"] = _chernoff(term, weights, 1 + epsilon, count)
        bounds["hoeffding"] = np.minimum(2 * np.exp(-count * epsilon**2 * np.exp(2 * log_mean) / 2), 1)
    else:
        level = np.log(count * (1 + epsilon)) + log_mean  # of the logarithm of the term
        if estimator == "hyperbolic":
            level = np.arccosh(np.exp(level))
        sides = 2 if estimator == "hyperbolic" else 1
        bounds["upper_jump"] = -np.expm1(count * np.log1p(-sides * np.exp(special.log_ndtr(-level / width))))
    return bounds


def _chernoff(term: Float64, weights: Float64, above: Float64, count: int) -> Float64:
    """Bound the probability that the mean of `count` terms exceeds `above`, (L, E): at most 1, which is t = 0."""
    t = np.geomspace(1e-3, 1e4, 300)[:, None, None]
    moments = special.logsumexp(t * term + weights, axis=-1)  # (T, L)
    exponent = count * (moments[..., None] - t * above)  # (T, L, E)
    return np.asarray(np.exp(np.minimum(exponent.min(axis=0), 0)))
