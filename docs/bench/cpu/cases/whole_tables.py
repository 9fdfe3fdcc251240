"""Estimators on whole tables: in a learned metric against trees, and on a wide table against a line."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.kernels import Matern
from kernattn.studies import Table

NEW = 10000  # rows on which errors are taken
KEPT = 0.999  # of squared errors: a handful of rows that cannot be carry half of the sum
WIDE_NEW, NOISE = 1000, 0.3  # new rows of a wide table, and the deviation of its noise
LANDMARKS = 1408  # which take fifteen seconds or less


def learned(o: Sizes, load: Callable[[], Table]) -> Race:
    """Ridge regression in a learned metric, with a Matern kernel, on all rows of a table but ten thousand."""
    part = load().split(o.n, NEW, rng=o.seed)
    x, y, new, truth = (each.astype("f8") for each in part)
    peers.limit_blas()

    def ours() -> Any:
        cls = import_module("kernattn.sklearn").FeatureRidge
        given = {"lengthscale": "tune", "metric": "learned", "num_features": LANDMARKS, "random_state": o.seed}
        return cls(Matern(1.5), **given).fit(x, y).predict(new)

    def trees() -> Any:
        cls = import_module("sklearn.ensemble").HistGradientBoostingRegressor
        return cls(random_state=o.seed).fit(x, y).predict(new)

    calls = {"ours": ours}
    if peers.have("sklearn"):
        calls["HistGradientBoosting"] = trees

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: float(np.mean(np.sort((call() - truth) ** 2)[: int(KEPT * len(truth))]))

    def median(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: float(np.median(np.abs(call() - truth)))

    entries = float(o.n) * LANDMARKS
    work = Work(float(x.nbytes), entries * 2.0 * (x.shape[1] + LANDMARKS), entries)
    errors, medians = ({name: of(call) for name, call in calls.items()} for of in (error, median))
    return Race(calls, work, errors=errors, medians=medians, dim=x.shape[1], dtype="float64")


def wide(o: Sizes) -> Race:
    """The default FeatureRidge, and scikit-learn's RidgeCV, on a line of a third more columns than rows.

    Where the answer is a line, RidgeCV asks for no more; ours also tries kernels beside it.
    """
    d, rng = 4 * o.n // 3, np.random.default_rng(o.seed)
    x, line = rng.standard_normal((o.n + WIDE_NEW, d)), rng.standard_normal(d) / np.sqrt(d)
    y = x @ line + NOISE * rng.standard_normal(len(x))
    peers.limit_blas()

    def call(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: make().fit(x[: o.n], y[: o.n]).predict(x[o.n :])

    calls = {"ours": call(lambda: import_module("kernattn.sklearn").FeatureRidge(random_state=o.seed))}
    if peers.have("sklearn"):
        ridges = np.logspace(-3, 4, 20)
        calls["RidgeCV"] = call(lambda: import_module("sklearn.linear_model").RidgeCV(ridges))

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: float(np.mean((call() - y[o.n :]) ** 2))

    errors = {name: error(call) for name, call in calls.items()}
    work = Work(float(x.nbytes), 2.0 * o.n**2 * d)
    return Race(calls, work, errors=errors, dim=d, dtype="float64")
