"""Estimators of kernattn.sklearn, and rows, targets and labels for them."""

import numpy as np

import kernattn as ka
from kernattn.sklearn import (
    FeatureClassifier,
    FeatureGP,
    FeatureLogistic,
    FeaturePCA,
    FeatureRegressor,
    FeatureRidge,
    FeatureSVC,
    NystromFeatures,
    PolynomialSketchFeatures,
    RandomFeatures,
)

TRANSFORMERS = [RandomFeatures, NystromFeatures, PolynomialSketchFeatures, FeaturePCA]
REGRESSORS = [FeatureRidge, FeatureGP, FeatureRegressor]
CLASSIFIERS = [FeatureClassifier, FeatureLogistic, FeatureSVC]
ALL = TRANSFORMERS + REGRESSORS + CLASSIFIERS
RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]]) + 0.1 * RNG.standard_normal((90, 2))
W = RNG.uniform(0.5, 3, 90)
LABELS = np.array(["c", "a", "b"])[np.digitize(X[:, 0], [-0.5, 0.5])]
KERNEL = ka.kernels.Gaussian(1.5)
GIVEN = {"lengthscale": 1.5, "num_features": 32, "random_state": 3}
DRAWN = GIVEN | {"estimator": "auto"}  # random features, also where landmarks are the default
PHI = ka.random_features(KERNEL, 3, 32, rng=3)


def fitted(cls, x=X, **parameters):
    parameters = {"num_features": 32, "random_state": 3} | parameters
    if cls not in TRANSFORMERS:
        parameters = {"lengthscale": None if "kernel" in parameters else "scale"} | parameters  # no search
    if cls in (FeatureRegressor, FeatureSVC):
        parameters = {"ridge": 0.1} | parameters
    y = [] if cls in TRANSFORMERS else [LABELS[: len(x)] if cls in CLASSIFIERS else Y[: len(x), 0]]
    return cls(**parameters).fit(x, *y)


def answer(estimator, x=X):
    methods = ("transform", "decision_function", "predict")
    return getattr(estimator, next(name for name in methods if hasattr(estimator, name)))(x)
