"""Linear models of other losses than squares on features that are given, against scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.features import linear, random_features
from kernattn.kernels import Gaussian
from kernattn.solvers import linear_model, logistic

PENALTY = 1.0
QUANTILE = 0.9


def _models(loss: str, n: int) -> dict[str, Callable[[], Any]]:
    """Return what makes scikit-learn's models, with their own tolerances, and one that takes our sum to 1e-6."""
    if not peers.have("sklearn"):
        return {}
    models, svm = import_module("sklearn.linear_model"), import_module("sklearn.svm")
    found: dict[str, dict[str, Callable[[], Any]]] = {
        "huber": {"HuberRegressor, 100 steps": lambda: models.HuberRegressor(alpha=PENALTY / 2)},
        "logistic": {
            "LogisticRegression, L-BFGS": lambda: models.LogisticRegression(C=1 / PENALTY, max_iter=1000),
            "LogisticRegression, Newton": lambda: models.LogisticRegression(C=1 / PENALTY, solver="newton-cholesky"),
        },
        "poisson": {
            "PoissonRegressor, L-BFGS": lambda: models.PoissonRegressor(alpha=PENALTY / n),
            "PoissonRegressor, L-BFGS to 1e-5": lambda: models.PoissonRegressor(alpha=PENALTY / n, tol=1e-5),
            "PoissonRegressor, Newton": lambda: models.PoissonRegressor(alpha=PENALTY / n, solver="newton-cholesky"),
        },
        "quantile": {"QuantileRegressor": lambda: models.QuantileRegressor(quantile=QUANTILE, alpha=0.0)},
        "squared_hinge": {
            "LinearSVC": lambda: svm.LinearSVC(C=1 / PENALTY, dual=False, fit_intercept=False),
        },
    }
    return found[loss]


def fits(o: Sizes, loss: str) -> Race:
    """A linear model of another loss on given features; for errors, by what part its sum is above ours."""
    peers.limit_blas()
    x, noise = normal(o, (o.n, o.dim), (o.n,))
    phi = random_features(Gaussian(float(np.sqrt(o.dim))), o.dim, o.features, rng=o.seed)
    features, given = np.asarray(phi(x.astype(float))), linear(np.ones(o.features))
    features = features.astype(o.dtype) if loss == "logistic" else features  # as the other peers read float64
    level = np.sin(1.5 * np.sum(x, axis=1) / np.sqrt(o.dim)).astype(float)
    labels = np.where(level + noise / 2 > 0, 1.0, -1.0)
    targets = {
        "poisson": np.random.default_rng(o.seed).poisson(np.exp(level)).astype(float),
        "squared_hinge": labels,
        "logistic": labels,
    }
    y = targets.get(loss, level + 0.3 * noise * np.exp(noise))
    bare = loss == "squared_hinge"

    def ours() -> Any:
        if loss == "logistic":
            classes = logistic(features, given, y=y, penalty=PENALTY)
            return _objective(loss, features, y, classes.weights, float(classes.intercept), np.nan)
        penalty = 1e-6 if loss == "quantile" else PENALTY
        fit = linear_model(features, given, y=y, loss=loss, quantile=QUANTILE, penalty=penalty, intercept=not bare)
        return _objective(loss, features, y, fit.weights, fit.intercept, fit.scale)

    def theirs(make: Callable[[], Any]) -> Any:
        fit = make().fit(features, y)
        b = np.ravel(fit.intercept_)[0]
        return _objective(loss, features, y, fit.coef_.ravel().astype(float), b, getattr(fit, "scale_", np.nan))

    calls: dict[str, Callable[[], Any]] = {"ours": ours}
    calls |= {name: partial(theirs, make) for name, make in _models(loss, o.n).items()}
    m = float(o.features)

    def excess(call: Callable[[], Any]) -> float:
        least = ours()
        return (call() - least) / abs(least)

    errors = {name: partial(excess, call) for name, call in calls.items()}
    return Race(calls, Work(float(features.nbytes), 4 * o.n * m), errors=errors)


def _objective(loss: str, features: Any, y: Any, w: Any, b: float, scale: float) -> float:
    """Return the mean over rows of the sum that is made least, without the penalty of a quantile."""
    f = features @ w + b
    if loss == "huber":
        z = np.abs(y - f) / scale
        losses = scale * (1 + np.where(z < 1.35, z * z, 2.7 * z - 1.35**2))
    elif loss == "logistic":
        losses = np.logaddexp(0, -y * f)
    elif loss == "poisson":
        losses = np.exp(f) - y * f
    elif loss == "quantile":
        losses = np.maximum(QUANTILE * (y - f), (QUANTILE - 1) * (y - f))
    else:
        losses = np.maximum(1 - y * f, 0) ** 2
    return float(np.mean(losses) + (0.0 if loss == "quantile" else PENALTY / 2 * (w @ w) / len(y)))


ROWS = {"huber": 100_000, "logistic": 100_000, "poisson": 100_000, "quantile": 5000, "squared_hinge": 100_000}
LOSSES = {
    f"loss-{loss.replace('_', '-')}": Case(partial(fits, loss=loss), n=n, told=loss.replace("_", " "))
    for loss, n in ROWS.items()
}
