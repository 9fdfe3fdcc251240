"""Solvers on moments, against what takes the rows again, and against pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import get_blas_funcs

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.cpu.kernel_peers import gaussian_sum
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Gaussian
from kernattn.solvers import mmd, moments, ridge
from kernattn.studies import Table

RIDGES = np.geomspace(1e-2, 1e3, 10)
ROWS = 2000  # on which errors are taken
NEW = 10000  # on which those of real data are
BLOCK = 1024  # rows of a block of the peer


def _map(o: Sizes) -> FeatureMap:
    return random_features(Gaussian(float(np.sqrt(o.dim))), o.dim, o.features, "trigonometric", rng=o.seed)


def _targets(x: Any) -> Any:
    return np.sin(1.5 * np.sum(x, axis=1) / np.sqrt(x.shape[1]))


def ridges(o: Sizes) -> Race:
    """Ridge regression by ten ridges on random features, to the weights of all and the best on rows left out."""
    x, noise, new = normal(o, (o.n, o.dim), (o.n,), (ROWS, o.dim))
    return _ridges(o, x, _targets(x) + noise / 2, new, _targets(new))


def ridges_on(o: Sizes, load: Callable[[], Table]) -> Race:
    """Ridge regression by ten ridges on random features of real data, with errors on ten thousand rows left out."""
    part = load().split(o.n, NEW, rng=o.seed)
    x, y, new, truth = (each.astype(o.dtype) for each in part)
    race = _ridges(o.but(dim=x.shape[1]), x, y, new, truth)

    def median(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(float(np.median(np.abs(predicted - truth))) for predicted in call())

    return replace(race, medians={name: median(call) for name, call in race.calls.items()}, dim=x.shape[1])


def _ridges(o: Sizes, x: Any, y: Any, new: Any, truth: Any) -> Race:
    peers.limit_blas()
    phi = _map(o)
    omega = np.asarray(phi.spec.omega.T, x.dtype)

    def ours(products: str = "float64") -> Any:
        fit = ridge(moments(x, phi, y=y, products=products), RIDGES[0])
        fits = [fit.at(value) for value in RIDGES]
        weights = np.stack([each.weights for each in fits], axis=1)
        return (phi(new) @ weights + np.array([each.intercept for each in fits])).T

    calls = {"ours": ours, "sums by NumPy": lambda: _by_numpy(omega, x, y, new, "f8")}
    if o.dtype == "float32":
        calls |= {
            "ours, multiplied in float32": partial(ours, "float32"),
            "sums by NumPy, multiplied in float32": lambda: _by_numpy(omega, x, y, new, "f4"),
        }
    if peers.have("sklearn"):
        calls |= {
            "ten refits by scikit-learn": lambda: _refits(o, x, y, new),
            "ten refits by scikit-learn, lean": lambda: _by_sklearn(o, x, y, new, [[value] for value in RIDGES]),
            "scikit-learn, ten targets": lambda: _by_sklearn(o, x, y, new, [RIDGES]),
        }

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(float(np.mean((predicted - truth) ** 2)) for predicted in call())

    m = o.features
    flops = o.n * (o.dim * float(m) + m * (m + 1.0) + 2.0 * m)
    work = Work(float(x.nbytes), flops, o.n * m / 2.0)
    return Race(calls, work, errors={name: error(call) for name, call in calls.items()})


def _by_numpy(omega: Any, x: Any, y: Any, new: Any, dtype: str) -> Any:
    """Return predictions: features in one room, one triangle of sums in place, a factor for each ridge."""
    n, half = len(x), omega.shape[1]
    across, room = np.ascontiguousarray(omega.T), np.empty((2 * half, BLOCK), dtype)
    gram, s, cross = np.zeros((2 * half, 2 * half), dtype, order="F"), np.zeros(2 * half), np.zeros(2 * half)
    (syrk,) = get_blas_funcs(("syrk",), dtype=gram.dtype)
    mean = float(np.mean(y, dtype="f8"))
    centred = (y - mean).astype(dtype)

    def waves(rows: Any) -> Any:
        u, block = across @ rows.T, room[:, : len(rows)]
        np.cos(u, out=block[:half])
        np.sin(u, out=block[half:])
        return block

    for i in range(0, n, BLOCK):
        block = waves(x[i : i + BLOCK])
        gram = syrk(1.0, block.T, trans=1, beta=1.0, c=gram, overwrite_c=True)
        s += np.sum(block, axis=1)
        cross += block @ centred[i : i + BLOCK]
    gram = syrk(-1 / n, s[None].astype(dtype), trans=1, beta=1.0, c=gram, overwrite_c=True)
    weights = np.empty((2 * half, len(RIDGES)), dtype)
    for j, value in enumerate(RIDGES * half):  # of features that are not scaled
        sums = gram.copy(order="F")
        np.fill_diagonal(sums, np.diagonal(sums) + value)
        factor = cho_factor(sums, overwrite_a=True, check_finite=False)
        weights[:, j] = cho_solve(factor, cross.astype(dtype), check_finite=False)
    predictions = [waves(new[i : i + BLOCK]).T @ weights for i in range(0, len(new), BLOCK)]
    return (np.concatenate(predictions) + (mean - s @ weights / n)).T


def _sampler(o: Sizes, x: Any) -> Any:
    kernel = import_module("sklearn.kernel_approximation")
    return kernel.RBFSampler(gamma=0.5 / o.dim, n_components=o.features, random_state=o.seed).fit(x)


def _refits(o: Sizes, x: Any, y: Any, new: Any) -> Any:
    """Return predictions of a fit for each ridge, as scikit-learn makes them unasked."""
    sampler, linear = _sampler(o, x), import_module("sklearn.linear_model")
    features, others = sampler.transform(x), sampler.transform(new)
    return [linear.Ridge(alpha=value).fit(features, y).predict(others) for value in RIDGES]


def _by_sklearn(o: Sizes, x: Any, y: Any, new: Any, groups: Any) -> Any:
    """Return predictions of fits to groups of ridges: features and targets are centred once, and nothing is checked."""
    sklearn, linear = import_module("sklearn"), import_module("sklearn.linear_model")
    with sklearn.config_context(assume_finite=True):
        sampler = _sampler(o, x)
        features, others = sampler.transform(x), sampler.transform(new)
        mean, level = np.mean(features, axis=0), np.mean(y)
        features -= mean
        others -= mean
        predictions = []
        for group in groups:
            targets = np.repeat((y - level)[:, None], len(group), axis=1)
            fit = linear.Ridge(alpha=group, fit_intercept=False, copy_X=False, solver="cholesky").fit(features, targets)
            predictions.append(others @ fit.coef_.T.reshape(o.features, -1) + level)
        return np.concatenate(predictions, axis=1).T


def two_samples(o: Sizes) -> Race:
    """A two-sample test with its p-value, against the statistic over all pairs of rows, without one."""
    peers.limit_blas()
    x, y = normal(o, (o.n, o.dim), (o.n, o.dim))
    phi = _map(o)

    def pairs() -> float:
        within = (gaussian_sum(x, x) + gaussian_sum(y, y) - 2 * o.n) / (o.n * (o.n - 1))
        return within - 2 * gaussian_sum(x, y) / o.n**2

    def ours(products: str = "float64") -> Any:
        return mmd(*(moments(rows, phi, products=products) for rows in (x, y)))

    calls = {"ours": ours, "all pairs, no p-value": pairs}
    if o.dtype == "float32":
        calls["ours, multiplied in float32"] = partial(ours, "float32")
    m = o.features
    flops = 2 * o.n * (o.dim * float(m) + m * (m + 1.0))
    return Race(calls, Work(2.0 * x.nbytes, flops, float(o.n * m)))
