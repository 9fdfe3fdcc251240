"""Solvers on moments, against what takes the rows again, and against pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from kernattn.bench._races import Call
from kernattn.bench._rates import Work
from kernattn.bench._rows import Race
from kernattn.bench._sizes import Sizes
from kernattn.bench.cpu import _peers as peers
from kernattn.bench.cpu._cases.inputs import normal
from kernattn.bench.cpu._kernel_peers import gaussian_sum
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Gaussian
from kernattn.solvers import mmd, moments, ridge
from kernattn.studies import Table

__all__ = ["ridges", "ridges_on", "two_samples"]

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
    race = _ridges(replace(o, dim=x.shape[1]), x, y, new, truth)

    def median(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(float(np.median(np.abs(found - truth))) for found in call())

    return replace(race, medians={name: median(call) for name, call in race.calls.items()}, dim=x.shape[1])


def _ridges(o: Sizes, x: Any, y: Any, new: Any, truth: Any) -> Race:
    peers.limit_blas()
    phi = _map(o)
    omega = np.asarray(phi.spec.omega.T, x.dtype)  # type: ignore[union-attr]

    def ours() -> Any:
        fit = ridge(moments(phi, x, y), RIDGES[0])
        fits = [fit.at(value) for value in RIDGES]
        weights = np.stack([each.weights for each in fits], axis=1)
        return (phi(new) @ weights + np.array([each.intercept for each in fits])).T

    def refits() -> Any:
        features, others = _by_sklearn(o, x, new)
        linear = import_module("sklearn.linear_model")
        return [linear.Ridge(alpha=value).fit(features, y).predict(others) for value in RIDGES]

    def at_once() -> Any:
        features, others = _by_sklearn(o, x, new)
        fit = import_module("sklearn.linear_model").Ridge(alpha=RIDGES)
        return fit.fit(features, np.repeat(y[:, None], len(RIDGES), axis=1)).predict(others).T

    calls: dict[str, Callable[[], Any]] = {"ours": ours, "sums by NumPy": lambda: _by_numpy(omega, x, y, new)}
    if peers.have("sklearn"):
        calls |= {"ten refits by scikit-learn": refits, "scikit-learn, ten targets": at_once}

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(float(np.mean((found - truth) ** 2)) for found in call())

    m = o.features
    flops = o.n * (o.dim * float(m) + m * (m + 1.0) + 2.0 * m)
    work = Work(float(x.nbytes), flops, o.n * m / 2.0)
    return Race(calls, work, errors={name: error(call) for name, call in calls.items()})


def _by_numpy(omega: Any, x: Any, y: Any, new: Any) -> Any:
    """Return predictions: features in one room, one triangle of sums in place, a factor for each ridge."""
    n, half = len(x), omega.shape[1]
    across, room = np.ascontiguousarray(omega.T), np.empty((2 * half, BLOCK))
    gram, s, cross = np.zeros((2 * half, 2 * half), order="F"), np.zeros(2 * half), np.zeros(2 * half)

    def waves(rows: Any) -> Any:
        u, block = across @ rows.T, room[:, : len(rows)]
        np.cos(u, out=block[:half])
        np.sin(u, out=block[half:])
        return block

    for i in range(0, n, BLOCK):
        block = waves(x[i : i + BLOCK])
        gram = dsyrk(1.0, block.T, trans=1, beta=1.0, c=gram, overwrite_c=True)
        s += np.sum(block, axis=1)
        cross += block @ y[i : i + BLOCK].astype("f8")
    mean = float(np.mean(y, dtype="f8"))
    gram = dsyrk(-1 / n, s[None], trans=1, beta=1.0, c=gram, overwrite_c=True)
    weights = np.empty((2 * half, len(RIDGES)))
    for j, value in enumerate(RIDGES * half):  # of features that are not scaled
        sums = gram.copy(order="F")
        np.fill_diagonal(sums, np.diagonal(sums) + value)
        weights[:, j] = cho_solve(cho_factor(sums, overwrite_a=True, check_finite=False), cross - s * mean)
    found = [waves(new[i : i + BLOCK]).T @ weights for i in range(0, len(new), BLOCK)]
    return (np.concatenate(found) + (mean - s @ weights / n)).T


def _by_sklearn(o: Sizes, x: Any, new: Any) -> tuple[Any, Any]:
    """Return random features of rows and of new ones."""
    sampler = import_module("sklearn.kernel_approximation")
    features = sampler.RBFSampler(gamma=0.5 / o.dim, n_components=o.features, random_state=o.seed).fit(x)
    return features.transform(x), features.transform(new)


def two_samples(o: Sizes) -> Race:
    """A two-sample test with its p-value, against the statistic over all pairs of rows, without one."""
    peers.limit_blas()
    x, y = normal(o, (o.n, o.dim), (o.n, o.dim))
    phi = _map(o)

    def pairs() -> float:
        within = (gaussian_sum(x, x) + gaussian_sum(y, y) - 2 * o.n) / (o.n * (o.n - 1))
        return within - 2 * gaussian_sum(x, y) / o.n**2

    calls: dict[str, Call] = {"ours": lambda: mmd(moments(phi, x), moments(phi, y)), "all pairs, no p-value": pairs}
    m = o.features
    flops = 2 * o.n * (o.dim * float(m) + m * (m + 1.0))
    return Race(calls, Work(2.0 * x.nbytes, flops, float(o.n * m)))
