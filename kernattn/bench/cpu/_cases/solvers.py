"""Solvers on moments, against what takes the rows again, and against pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from kernattn.bench._races import Call
from kernattn.bench._rates import Work
from kernattn.bench._rows import Race
from kernattn.bench._sizes import Sizes
from kernattn.bench.cpu import _peers as peers
from kernattn.bench.cpu._cases.inputs import normal
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Gaussian
from kernattn.solvers import mmd, moments, ridge

__all__ = ["ridges", "two_samples"]

RIDGES = np.geomspace(1e-2, 1e3, 10)
ROWS = 2000  # on which errors are taken
BLOCK = 4096  # rows of a block of the peers


def _map(o: Sizes) -> FeatureMap:
    return random_features(Gaussian(float(np.sqrt(o.dim))), o.dim, o.features, "trigonometric", rng=o.seed)


def _targets(x: Any) -> Any:
    return np.sin(1.5 * np.sum(x, axis=1) / np.sqrt(x.shape[1]))


def ridges(o: Sizes) -> Race:
    """Ridge regression by ten ridges on random features, to the weights of all and the best on rows left out."""
    peers.limit_blas()
    x, noise, new = normal(o, (o.n, o.dim), (o.n,), (ROWS, o.dim))
    y, truth, phi = _targets(x) + noise / 2, _targets(new), _map(o)
    omega = np.asarray(phi.spec.omega.T, x.dtype)  # type: ignore[union-attr]

    def ours() -> Any:
        fit = ridge(moments(phi, x, y), RIDGES[0])
        return [fit.at(value).predict(new) for value in RIDGES]

    def waves(rows: Any) -> Any:
        u = rows @ omega
        return np.hstack([np.cos(u), np.sin(u)]) / np.sqrt(omega.shape[1])

    def by_numpy() -> Any:
        gram, cross = 0.0, 0.0
        for i in range(0, o.n, BLOCK):
            rows = np.column_stack([waves(x[i : i + BLOCK]), np.ones(len(x[i : i + BLOCK]))]).astype("f8")
            gram, cross = gram + rows.T @ rows, cross + rows.T @ y[i : i + BLOCK].astype("f8")
        s, mean = gram[-1, :-1], cross[-1] / o.n  # type: ignore[index]
        values, vectors = np.linalg.eigh(gram[:-1, :-1] - np.outer(s, s) / o.n)  # type: ignore[index]
        turned, features = vectors.T @ (cross[:-1] - s * mean), waves(new).astype("f8") - s / o.n  # type: ignore[index]
        return [features @ (vectors @ (turned / (values + value))) + mean for value in RIDGES]

    def refits() -> Any:
        sampler, linear = import_module("sklearn.kernel_approximation"), import_module("sklearn.linear_model")
        found = []
        for value in RIDGES:
            features = sampler.RBFSampler(gamma=0.5 / o.dim, n_components=o.features, random_state=o.seed).fit(x)
            fit = linear.Ridge(alpha=value).fit(features.transform(x), y)
            found.append(fit.predict(features.transform(new)))
        return found

    calls: dict[str, Callable[[], Any]] = {"ours": ours, "sums by NumPy": by_numpy}
    if peers.have("sklearn"):
        calls["ten refits by scikit-learn"] = refits

    def error(call: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(float(np.mean((found - truth) ** 2)) for found in call())

    m = o.features
    flops = o.n * (o.dim * float(m) + m * (m + 1.0) + 2.0 * m)
    work = Work(float(x.nbytes), flops, o.n * m / 2.0)
    return Race(calls, work, errors={name: error(call) for name, call in calls.items()})


def two_samples(o: Sizes) -> Race:
    """A two-sample test with its p-value, against the statistic over all pairs of rows, without one."""
    peers.limit_blas()
    x, y = normal(o, (o.n, o.dim), (o.n, o.dim))
    phi = _map(o)

    def total(a: Any, b: Any) -> float:
        found, norms = 0.0, np.sum(b**2, axis=1) / (2 * o.dim)
        for i in range(0, o.n, BLOCK):
            rows = a[i : i + BLOCK]
            scores = rows @ b.T
            scores /= o.dim
            scores -= norms
            scores -= (np.sum(rows**2, axis=1) / (2 * o.dim))[:, None]
            found += float(np.sum(np.exp(scores, out=scores), dtype="f8"))
        return found

    def pairs() -> float:
        within = (total(x, x) + total(y, y) - 2 * o.n) / (o.n * (o.n - 1))
        return within - 2 * total(x, y) / o.n**2

    calls: dict[str, Call] = {"ours": lambda: mmd(moments(phi, x), moments(phi, y)), "all pairs, no p-value": pairs}
    m = o.features
    flops = 2 * o.n * (o.dim * float(m) + m * (m + 1.0))
    return Race(calls, Work(2.0 * x.nbytes, flops, float(o.n * m)))
