"""Estimators in a learned metric: what they find, that they are as before where none is asked for or found."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernattn as ka
from kernattn.errors import ParameterError
from kernattn.sklearn import FeatureGP, FeatureLogistic, FeatureRegressor, FeatureRidge, FeatureSVC

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((2, 120, 4))
TARGETS = np.sin(2 * X[:, 0] - X[:, 1])
EXPECTED = np.sin(2 * NEW[:, 0] - NEW[:, 1])
GIVEN = {"num_features": 32, "lengthscale": 2.0, "random_state": 0, "ridge": 1e-3}


def test_a_ridge_in_a_metric():
    plain, learned = (FeatureRidge(**GIVEN, metric=each).fit(X, TARGETS) for each in (None, "learned"))
    assert plain.metric_ is None
    assert type(plain.feature_map_) is ka.features.Nystrom
    assert learned.metric_.form in ("diagonal", "full")
    assert type(learned.feature_map_) is ka.features.Transformed
    np.testing.assert_array_equal(learned.feature_map_.matrix, learned.metric_.factor)
    errors = [np.mean((one.predict(NEW) - EXPECTED) ** 2) for one in (plain, learned)]
    assert errors[1] < 0.5 * errors[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(learned)).predict(NEW), learned.predict(NEW))
    single = learned.predict(NEW.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, learned.predict(NEW), atol=1e-4)


def test_where_none_is_better_nothing_changes():
    noise = RNG.standard_normal((120, 2))
    given = {"num_features": 32, "lengthscale": "scale", "random_state": 0}
    plain, learned = (FeatureRidge(**given, metric=each).fit(X, noise) for each in (None, "learned"))
    assert learned.metric_.form == "none"
    np.testing.assert_array_equal(plain.predict(NEW), learned.predict(NEW))


def test_weights_are_copies_and_order_does_not_matter():
    counts, order = RNG.integers(1, 3, 120), RNG.permutation(120)
    given = GIVEN | {"metric": "learned"}
    again = np.repeat(np.arange(120), counts)
    weighed = FeatureRidge(**given).fit(X, TARGETS, sample_weight=counts).predict(NEW)
    np.testing.assert_allclose(FeatureRidge(**given).fit(X[again], TARGETS[again]).predict(NEW), weighed, atol=1e-5)
    moved = FeatureRidge(**given).fit(X[order], TARGETS[order], sample_weight=counts[order]).predict(NEW)
    np.testing.assert_allclose(moved, weighed, atol=1e-5)


@pytest.mark.parametrize("cls", [FeatureLogistic, FeatureSVC])
def test_classes_in_a_metric(cls):
    labels = np.where(TARGETS > 0, "above", "below")
    given = GIVEN | {"ridge": 0.1, "metric": "learned"}
    model = make_pipeline(StandardScaler(), clone(cls(**given)).set_params(num_features=48)).fit(X, labels)
    assert model[-1].metric_.form != "none"
    assert np.mean(model.predict(NEW) == np.where(EXPECTED > 0, "above", "below")) > 0.75


def test_another_loss_and_parts():
    huber = FeatureRegressor(**GIVEN, metric="learned").fit(X, TARGETS)
    assert huber.metric_.form != "none"
    parts = FeatureRidge(**GIVEN, metric="learned").partial_fit(X[:100], TARGETS[:100])
    before = parts.metric_
    assert parts.partial_fit(X[100:], TARGETS[100:]).metric_ is before
    assert np.isfinite(parts.predict(NEW)).all()


def test_a_process_in_a_metric():
    given = {"num_features": 32, "lengthscale": 2.0, "random_state": 0}
    learned = FeatureGP(**given, metric="learned").fit(X[:60], TARGETS[:60])
    assert learned.metric_.form != "none"
    (mean,), (std,) = learned.predict(X[:1] + 1e3, return_std=True)
    scales = learned.solution_
    assert mean == pytest.approx(learned.y_mean_)
    assert std == pytest.approx(np.hypot(scales.noise[0], scales.amplitude[0]))


def test_a_process_with_a_line():
    slopes = np.array([3.0, -1.0, 0.0, 2.0])
    y = X @ slopes + TARGETS
    model = FeatureGP(num_features=32, lengthscale=2.0, linear=True, random_state=0).fit(X, y)
    near, far = (by * np.ones((1, 4)) for by in (1e2, 1e3))
    np.testing.assert_allclose(model.predict(far), far @ slopes, rtol=0.2)
    (_, close), (_, wide) = (model.predict(rows, return_std=True) for rows in (near, far))
    assert wide == pytest.approx(10 * close, rel=0.1)
    assert FeatureGP(num_features=32, lengthscale=2.0, random_state=0).fit(X, y).predict(far) == pytest.approx(y.mean())


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"metric": "euclidean"}, r"metric must be None or 'learned'"),
        ({"metric": "learned", "lengthscale": "ard"}, "lengthscale must not be 'ard'"),
        ({"metric": "learned", "lengthscale": [1.0] * 4}, "one lengthscale"),
        ({"metric": "learned", "kernel": "softmax"}, "kernel must be one of"),
    ],
)
def test_refusals(given, match):
    with pytest.raises(ParameterError, match=match):
        FeatureRidge(**given).fit(X, TARGETS)
