"""Kernel ridge regression by conjugate gradients, against Nystrom features and against the exact fit of some rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve
from scipy.linalg.blas import dsyrk

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.cpu.kernel_peers import gaussian_matrix, gaussian_product
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.kernels import Gaussian
from kernattn.solvers import kernel_ridge
from kernattn.studies import Table

RIDGE = 1e-2
ROWS = 5000  # that are fitted exactly
NEW = 10000  # on which errors are taken
LENGTH = 12.0  # of real rows
BLOCK = 1024  # rows of a block of the sums
JITTER = 1e-13  # times the number of rows, on the diagonal of the sums: they round


def on_landmarks(o: Sizes) -> Race:
    """Kernel ridge regression on as many landmarks as there are features: fit and predict."""
    x, noise, new = normal(o, (o.n, o.dim), (o.n,), (NEW, o.dim))
    waves = [np.sin(1.5 * np.sum(rows, axis=1) / np.sqrt(o.dim)) for rows in (x, new)]
    return _race(o, x, waves[0] + noise / 2, new, waves[1], float(np.sqrt(o.dim)))


def on_landmarks_of(o: Sizes, load: Callable[[], Table]) -> Race:
    """Kernel ridge regression on as many landmarks as there are features, of real data, to errors on other rows."""
    part = load().split(o.n, NEW, rng=o.seed)
    x, y, new, truth = (each.astype(o.dtype) for each in part)
    race = _race(o.but(dim=x.shape[1]), x, y, new, truth, LENGTH)

    def median(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: float(np.median(np.abs(call() - truth)))

    return replace(race, medians={name: median(call) for name, call in race.calls.items()}, dim=x.shape[1])


def _race(o: Sizes, x: Any, y: Any, new: Any, truth: Any, lengthscale: float) -> Race:
    peers.limit_blas()
    kernel, m = Gaussian(lengthscale), o.features

    def ours() -> Any:
        return kernel_ridge(x, y, kernel, num_landmarks=m, penalty=RIDGE, rng=o.seed).predict(new)

    def some_rows() -> Any:
        few, values = x[:ROWS].astype("f8"), y[:ROWS].astype("f8")
        matrix = kernel(few)
        np.fill_diagonal(matrix, matrix.diagonal() + RIDGE)
        weights = solve(matrix.T, values, assume_a="pos", overwrite_a=True, check_finite=False)
        return kernel.matmul(new.astype("f8"), few, weights)

    def sums() -> Any:
        scale = np.sqrt(x.shape[1]) / lengthscale
        points = scale * x[np.random.default_rng(o.seed).choice(len(x), m, replace=False)].astype("f8")
        gram, cross = np.asfortranarray(RIDGE * gaussian_matrix(points, points)), np.zeros(m)
        np.fill_diagonal(gram, gram.diagonal() + JITTER * len(x))
        for i in range(0, len(x), BLOCK):
            block = gaussian_matrix(scale * x[i : i + BLOCK].astype("f8"), points)
            gram = dsyrk(1.0, block.T, beta=1.0, c=gram, overwrite_c=True)
            cross += y[i : i + BLOCK] @ block
        weights = cho_solve(cho_factor(gram, overwrite_a=True, check_finite=False), cross)
        return gaussian_product(scale * new.astype("f8"), points, weights[:, None])[:, 0]

    def sklearn() -> Any:
        approximation, linear = import_module("sklearn.kernel_approximation"), import_module("sklearn.linear_model")
        with import_module("sklearn").config_context(assume_finite=True):
            features = approximation.Nystroem(gamma=0.5 / lengthscale**2, n_components=m, random_state=o.seed).fit(x)
            fit = linear.Ridge(alpha=RIDGE, fit_intercept=False, copy_X=False, solver="cholesky")
            return fit.fit(features.transform(x), y).predict(features.transform(new))

    calls = {"ours": ours, f"exact, {ROWS} rows": some_rows, "sums by NumPy": sums}
    if peers.have("sklearn"):
        calls["scikit-learn's Nystroem and Ridge"] = sklearn

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: float(np.mean((call() - truth) ** 2))

    entries = float(o.n) * m  # of one product: what any step takes at least
    work = Work(float(x.nbytes), entries * 2.0 * (o.dim + 1), entries)
    return Race(calls, work, errors={name: error(call) for name, call in calls.items()})
