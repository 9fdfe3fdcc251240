"""An estimator in a learned metric on all rows of a table, against trees."""

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
