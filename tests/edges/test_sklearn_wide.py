"""Of more columns than rows, a line has a feature for each row, and the fit is that of a feature for each column."""

from unittest import mock

import numpy as np
import pytest

import kernattn as ka
from kernattn.sklearn import FeatureClassifier, FeatureGP, FeatureLogistic, FeatureRegressor, FeatureRidge, FeatureSVC

RNG = np.random.default_rng(0)
X, NEW = np.split(RNG.standard_normal((70, 300)) * np.geomspace(0.1, 10, 300) + 5, [40])
Y = X[:, :3] @ [1.0, 0.3, 0.1] + 0.1 * RNG.standard_normal(40)
W = 1.0 + RNG.integers(0, 3, 40)
ESTIMATORS = {
    "ridge": FeatureRidge(ridge=0.1),
    "classes": FeatureClassifier(ridge=0.1),
    "logistic": FeatureLogistic(ridge=0.1),
    "vectors": FeatureSVC(ridge=0.1),
    "huber": FeatureRegressor(ridge=0.1),
}


def fitted(model, wide, weights=W, **given):
    given = {"num_features": 16, "lengthscale": 30.0, "linear": True, "random_state": 0} | given
    model = type(model)(**model.get_params() | given)
    y = (
        Y
        if isinstance(model, FeatureRidge | FeatureRegressor | FeatureGP)
        else np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
    )
    with mock.patch("kernattn.sklearn._candidates.SPANNED", wide):
        return model.fit(X, y, sample_weight=weights)


def output(model, rows):
    return model.decision_function(rows) if hasattr(model, "decision_function") else model.predict(rows)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_fit_is_that_of_all_columns(name):
    few, all_columns = (fitted(ESTIMATORS[name], wide) for wide in (256, 512))
    features = [model.feature_map_.num_features_of(300) for model in (few, all_columns)]
    assert np.diff(features) == 300 - 40
    want = output(all_columns, NEW)
    tolerance = 1e-8 if name in ("ridge", "classes") else 1e-3  # steps end there
    np.testing.assert_allclose(output(few, NEW), want, atol=tolerance * np.ptp(want))


def test_what_tunes_is_the_same():
    given = {"lengthscale": "tune", "linear": None, "ridge": None}
    few, all_columns = (fitted(FeatureRidge(), wide, **given) for wide in (256, 512))
    np.testing.assert_allclose(few.predict(NEW), all_columns.predict(NEW), rtol=1e-6)
    assert few.solution_.penalty == pytest.approx(all_columns.solution_.penalty, rel=1e-6)


def test_it_is_saved_and_has_intervals(tmp_path):
    few, all_columns = (fitted(FeatureRidge(ridge=0.1), wide, None) for wide in (256, 512))
    few.feature_map_.save(tmp_path / "map.npz")
    again = ka.load(tmp_path / "map.npz")(NEW) @ few.solution_.weights + few.solution_.intercept
    np.testing.assert_allclose(again, few.solution_.predict(NEW))
    for got, want in zip(few.predict_interval(NEW, X, Y), all_columns.predict_interval(NEW, X, Y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_later_rows_and_variances_need_all_columns():
    given = {"num_features": 16, "lengthscale": 30.0, "linear": True, "random_state": 0}
    with pytest.warns(UserWarning, match="the first 40 rows"):
        parts = FeatureRidge(**given, estimator="rpcholesky").partial_fit(X, Y)
    for model in (parts, FeatureGP(**given).fit(X, Y)):
        assert model.feature_map_.num_features_of(300) == 316
