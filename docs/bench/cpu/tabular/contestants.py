"""Who is raced on tables: estimators of ours with their defaults, and peers with a search of what they need.

Peers choose among lengthscales of 1, 2, 4, 8 and 16 times the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from bench.cpu.peers import have
from kernattn._arrays.namespaces import Float64
from kernattn.kernels import Matern, usual_lengthscale
from kernattn.sklearn import ExactKernelRidge, FeatureClassifier, FeatureGP, FeatureLogistic, FeatureRidge

TIMES = (1.0, 2.0, 4.0, 8.0, 16.0)  # the usual lengthscale
RIDGES = np.logspace(-4, 4, 25)
FEW_RIDGES = np.logspace(-4, 2, 7)
STRENGTHS = np.logspace(-3, 3, 7)  # C of logistic regression and support vectors
FEATURES = 256
FOLDS = 3
BANDWIDTHS = (2.5, 10.0, 40.0)  # of xRFM
STEEP: dict[str, Any] = {"kernel": Matern(0.5), "lengthscale": "tune", "metric": "learned"}  # with the kernel of xRFM
TREES = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [6, 31]}

Fit = Callable[[Any, Any, int], Any]  # of rows, targets and a seed, to an estimator that is fitted


@dataclass(frozen=True)
class Contestant:
    """How an estimator is fitted, the most rows for which it fits in a search, and what package it needs."""

    fit: Fit
    rows: int = 1_000_000
    package: str = "sklearn"

    def here(self, rows: int) -> bool:
        """Tell whether it can be raced on so many rows."""
        return rows <= self.rows and have(self.package)


def _linear(x: Any, y: Any, _: int) -> Any:
    """Return the line whose ridge generalised cross-validation chooses."""
    return _chosen_ridge().fit(x, y)


def _chosen_ridge() -> Any:
    """Return ridge regression by generalised cross-validation, in the mode that takes the least time."""
    return _module("linear_model").RidgeCV(RIDGES, gcv_mode="svd")


def _ours(make: Callable[..., Any], x: Any, y: Any, seed: int) -> Any:
    return make(random_state=seed).fit(x, y)


def _gammas(x: Any) -> list[float]:
    return [0.5 / (by * float(usual_lengthscale(x))) ** 2 for by in TIMES]


def _features(kind: str, x: Any, y: Any, seed: int) -> Any:
    """Return features of scikit-learn and the line on them, at the lengthscale of the least score left out."""
    kernels, pipeline = _module("kernel_approximation"), _module("pipeline")
    best = None
    for gamma in _gammas(x):
        made = getattr(kernels, kind)(gamma=gamma, n_components=min(FEATURES, len(x)), random_state=seed)
        fit = pipeline.make_pipeline(made, _chosen_ridge()).fit(x, y)
        if best is None or fit[-1].best_score_ > best[-1].best_score_:
            best = fit
    return best


def _searched(make: Callable[[int], Any], grid: Callable[[Any], Any], scoring: str, x: Any, y: Any, seed: int) -> Any:
    """Return the best of a grid by folds."""
    search = _module("model_selection").GridSearchCV(make(seed), grid(x), scoring=scoring, cv=_folds(scoring, seed))
    return search.fit(x, y)


def _folds(scoring: str, seed: int) -> Any:
    name = "StratifiedKFold" if scoring in (LOG_LOSS, "accuracy") else "KFold"
    return getattr(_module("model_selection"), name)(FOLDS, shuffle=True, random_state=seed)


def _process(x: Any, y: Any, seed: int) -> Any:
    """Return a Gaussian process with noise, of the scales of the largest evidence."""
    kernels = import_module("sklearn.gaussian_process.kernels")
    start = kernels.ConstantKernel() * kernels.RBF(float(usual_lengthscale(x)), (1e-2, 1e3)) + kernels.WhiteKernel(0.3)
    process = _module("gaussian_process").GaussianProcessRegressor(start, normalize_y=True, random_state=seed)
    return process.fit(x, y)


def _kernel_ridge(_: int) -> Any:
    return _module("kernel_ridge").KernelRidge(kernel="rbf")


class _About:
    """A fit to targets less their mean."""

    def __init__(self, fit: Fit, x: Any, y: Any, seed: int) -> None:
        self.mean = np.mean(y)
        self.fitted = fit(x, y - self.mean, seed)

    def predict(self, x: Any) -> Any:
        return self.fitted.predict(x) + self.mean


def _trees(kind: str, seed: int) -> Any:
    return getattr(_module("ensemble"), f"HistGradientBoosting{kind}")(random_state=seed)


def _plain_trees(kind: str, x: Any, y: Any, seed: int) -> Any:
    return _trees(kind, seed).fit(x, y)


def _line_of_classes(x: Any, y: Any, seed: int) -> Any:
    """Return logistic regression whose penalty folds choose by the log loss."""
    return _searched(_logistic, lambda _: {"C": STRENGTHS}, LOG_LOSS, x, y, seed)


def _logistic(_: int) -> Any:
    return _module("linear_model").LogisticRegression(max_iter=500)


def _logistic_on(kind: str, seed: int) -> Any:
    features = getattr(_module("kernel_approximation"), kind)(n_components=FEATURES, random_state=seed)
    return _module("pipeline").make_pipeline(features, _logistic(seed))


def _features_grid(kind: str, x: Any) -> Any:
    return {f"{kind.lower()}__gamma": _gammas(x), "logisticregression__C": STRENGTHS[2::2] * 10}


def _vectors(x: Any, y: Any, seed: int) -> Any:
    """Return support vectors of the best accuracy on folds, with chances by a sigmoid of their scores on folds."""
    best = _searched(
        lambda _: _module("svm").SVC(), lambda x: {"gamma": _gammas(x), "C": STRENGTHS[2:]}, "accuracy", x, y, seed
    )
    calibration = _module("calibration").CalibratedClassifierCV(best.best_estimator_, cv=FOLDS, ensemble=False)
    return calibration.fit(x, y)


def _recursive(classes: bool, x: Any, y: Any, seed: int) -> Any:
    """Return xRFM: of bandwidths, ridges and full or diagonal metrics those that do best on a fifth of the rows.

    Of more than 1,000 rows they are its defaults, as one fit takes long. The same fifth ends its iterations.
    """
    torch, xrfm = import_module("torch"), import_module("xrfm")
    torch.set_num_threads(1)
    order = np.random.default_rng(seed).permutation(len(x))
    rows = np.array_split(order, [len(x) // 5])[::-1]
    targets, kinds = (np.unique(y, return_inverse=True)[::-1]) if classes else ((y - np.mean(y)) / np.std(y), None)
    parts = [(np.float32(x[which]), targets[which] if classes else np.float32(targets[which])) for which in rows]
    back = (0.0, 1.0) if classes else (float(np.mean(y)), float(np.std(y)))
    best: Any = None
    few = len(x) <= _ONE_MATRIX
    for bandwidth, ridge, diag in (
        product(BANDWIDTHS, (1e-3, 1e-1, 10.0), (False, True)) if few else [(10.0, 1e-3, False)]
    ):
        torch.manual_seed(seed)
        how = {"kernel": "l2", "exponent": 1.0, "bandwidth": bandwidth, "diag": diag, "bandwidth_mode": "constant"}
        fit = {"reg": ridge, "iters": 5, "verbose": False, "early_stop_rfm": True, "return_best_params": True}
        metric = "logloss" if classes else "mse"
        model = xrfm.xRFM(
            {"model": how, "fit": fit},
            device="cpu",
            tuning_metric=metric,
            random_state=seed,
            n_threads=1,
            verbose=False,
        )
        model.fit(*parts[0], *parts[1])
        found = _Recursive(model, *back, kinds)
        score = _left_out(found, x[rows[1]], y[rows[1]])
        best = (score, found) if best is None or score < best[0] else best
    return best[1]


def _left_out(model: Any, x: Any, y: Any) -> float:
    """Return the log loss or the squared error of rows left out."""
    if model.classes_ is None:
        return float(np.mean((model.predict(x) - y) ** 2))
    return judge(model, True, x, y, None)["score"]


class _Recursive:
    """xRFM with the targets' mean and deviation."""

    def __init__(self, model: Any, shift: float, unit: float, classes: Any) -> None:
        self.model, self.shift, self.unit, self.classes_ = model, shift, unit, classes

    def predict(self, x: Any) -> Any:
        if self.classes_ is not None:
            return self.classes_[np.argmax(self.predict_proba(x), axis=1)]
        return np.asarray(self.model.predict(np.float32(x)), dtype=np.float64).ravel() * self.unit + self.shift

    def predict_proba(self, x: Any) -> Any:
        return np.asarray(self.model.predict_proba(np.float32(x)), dtype=np.float64)


def _module(name: str) -> Any:
    return import_module(f"sklearn.{name}")


LOG_LOSS = "neg_log_loss"
_SQUARED = "neg_mean_squared_error"
_ONE_MATRIX = 1000  # rows whose matrix of pairs is searched over in seconds

REGRESSORS: Mapping[str, Contestant] = {
    "FeatureRidge": Contestant(partial(_ours, FeatureRidge)),
    "FeatureGP": Contestant(partial(_ours, FeatureGP)),
    "FeatureRidge, random": Contestant(partial(_ours, partial(FeatureRidge, estimator="auto"))),
    "FeatureGP, random": Contestant(partial(_ours, partial(FeatureGP, estimator="auto"))),
    "FeatureRidge, metric": Contestant(partial(_ours, partial(FeatureRidge, metric="learned"))),
    "FeatureRidge, metric, Matern": Contestant(partial(_ours, partial(FeatureRidge, **STEEP))),
    "ExactKernelRidge": Contestant(partial(_ours, ExactKernelRidge)),
    "line": Contestant(_linear),
    "RBFSampler + RidgeCV": Contestant(partial(_features, "RBFSampler")),
    "Nystroem + RidgeCV": Contestant(partial(_features, "Nystroem")),
    "KernelRidge": Contestant(
        partial(
            _About,
            partial(_searched, _kernel_ridge, lambda x: {"gamma": _gammas(x), "alpha": FEW_RIDGES}, _SQUARED),
        ),
        _ONE_MATRIX,
    ),
    "GaussianProcessRegressor": Contestant(_process, _ONE_MATRIX),
    "HistGradientBoosting": Contestant(partial(_plain_trees, "Regressor")),
    "HistGradientBoosting, searched": Contestant(
        partial(_searched, partial(_trees, "Regressor"), lambda _: TREES, _SQUARED)
    ),
    "xRFM": Contestant(partial(_recursive, False), package="xrfm"),
}
CLASSIFIERS: Mapping[str, Contestant] = {
    "FeatureLogistic": Contestant(partial(_ours, FeatureLogistic)),
    "FeatureClassifier": Contestant(partial(_ours, FeatureClassifier)),
    "FeatureLogistic, metric": Contestant(partial(_ours, partial(FeatureLogistic, metric="learned"))),
    "FeatureLogistic, metric, Matern": Contestant(partial(_ours, partial(FeatureLogistic, **STEEP))),
    "line": Contestant(_line_of_classes),
    "RBFSampler + LogisticRegression": Contestant(
        partial(_searched, partial(_logistic_on, "RBFSampler"), partial(_features_grid, "RBFSampler"), LOG_LOSS)
    ),
    "Nystroem + LogisticRegression": Contestant(
        partial(_searched, partial(_logistic_on, "Nystroem"), partial(_features_grid, "Nystroem"), LOG_LOSS)
    ),
    "SVC": Contestant(_vectors),
    "HistGradientBoosting": Contestant(partial(_plain_trees, "Classifier")),
    "HistGradientBoosting, searched": Contestant(
        partial(_searched, partial(_trees, "Classifier"), lambda _: TREES, LOG_LOSS)
    ),
    "xRFM": Contestant(partial(_recursive, True), package="xrfm"),
}


def judge(model: Any, classes: bool, new_x: Float64, new_y: Any, level: Any) -> dict[str, float]:
    """Return R2 of targets whose mean was `level` on the rows that were fitted; or log loss and accuracy of labels.

    Chances are 1e-6 at least.
    """
    if not classes:
        left = new_y - model.predict(new_x)
        score = 1 - float(np.mean(left**2) / np.mean((new_y - level) ** 2))
        return {"score": score, "median_error": float(np.median(np.abs(left)))}
    found = {"accuracy": float(np.mean(model.predict(new_x) == new_y))}
    if not hasattr(model, "predict_proba"):
        return found
    chances = np.clip(model.predict_proba(new_x), 1e-6, 1.0)
    chances /= chances.sum(axis=1, keepdims=True)
    at = np.searchsorted(model.classes_, new_y)
    return found | {"score": -float(np.mean(np.log(chances[np.arange(len(at)), at])))}
