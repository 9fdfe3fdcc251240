"""Regressors far from the rows that they have learnt: predictions stay within a margin of the targets' range."""

import warnings

import numpy as np
import pytest
from sklearn import config_context

import kernattn as ka
from kernattn.errors import ParameterError
from kernattn.sklearn import FeatureLogistic, FeatureRegressor, FeatureRidge, FeatureSVC, RandomFeatures

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 2))
Y = X[:, 0] + 0.1 * RNG.standard_normal(200)
FAR = np.array([[300.0, 0.0], [-300.0, 0.0], [0.1, 0.2]])
WIDTH = Y.max() - Y.min()
ENDS = Y.min() - WIDTH, Y.max() + WIDTH
OF_COUNTS = {"loss": "poisson", "lengthscale": 1.0, "num_features": 16, "linear": True, "random_state": 0}


def ridge(**given):
    return FeatureRidge(num_features=16, linear=True, lengthscale=1.0, ridge=1.0, random_state=0, **given)


SOME_ARE_HELD = pytest.mark.filterwarnings("ignore:.* rows are far from those of the fit:UserWarning")


@SOME_ARE_HELD
@pytest.mark.parametrize("margin", [0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_far_row_is_held_at_the_margin_and_no_other_is(margin, dtype):
    fitted = ridge(margin=margin).fit(X, Y)
    held, free = fitted.predict(FAR.astype(dtype)), fitted.solution_.predict(FAR.astype(dtype))
    assert held.dtype == dtype
    assert free[0] > 250
    assert free[1] < -250
    np.testing.assert_allclose(held[:2], [Y.max() + margin * WIDTH, Y.min() - margin * WIDTH], rtol=1e-6)
    assert held[2] == free[2]


def test_without_a_margin_the_line_goes_on():
    fitted = ridge(margin=None).fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(FAR), fitted.solution_.predict(FAR))


@pytest.mark.parametrize("targets", [Y, np.stack([Y, 3 - Y], axis=1)])
def test_more_than_a_hundredth_of_the_rows_is_not_held_without_a_word(targets):
    fitted = ridge().fit(X, targets)
    rows = np.concatenate([X[:198], FAR[:2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(rows)  # a hundredth
    with pytest.warns(UserWarning, match=r"^2 of 199 rows .* margin=1 widths .* set_params\(margin=None\)"):
        fitted.score(rows[1:], targets[1:200])
    free = fitted.set_params(margin=None).predict(rows[1:])
    np.testing.assert_array_equal(free, fitted.solution_.predict(rows[1:]))


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_held_rows_of_other_libraries_are_counted(library, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    xp, fitted = pytest.importorskip(library), ridge().fit(X, Y)
    with config_context(array_api_dispatch=True), pytest.warns(UserWarning, match="^2 of 3 rows") as told:
        held = fitted.predict(xp.asarray(FAR.astype(np.float32)))
    assert len(told) == 1
    np.testing.assert_allclose(np.asarray(held), np.clip(fitted.solution_.predict(FAR), *ENDS), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_targets_without_a_range_are_not_held_by_rounding(dtype):
    rows, targets = X.astype(dtype), np.full(200, 0.1)
    np.testing.assert_allclose(ridge().fit(rows, targets).predict(rows), targets, rtol=1e-6)


@SOME_ARE_HELD
def test_a_line_alone_is_held_too():
    fitted = FeatureRidge(random_state=0).fit(X, Y)
    assert isinstance(fitted.feature_map_, ka.features.Linear)
    np.testing.assert_allclose(fitted.predict(FAR)[:2], [Y.max() + WIDTH, Y.min() - WIDTH])


@SOME_ARE_HELD
def test_each_target_has_a_range_of_its_own():
    held = ridge().fit(X, np.stack([Y, 10 - 5 * Y], axis=1)).predict(FAR)
    np.testing.assert_allclose(held[:2, 0], [Y.max() + WIDTH, Y.min() - WIDTH])
    np.testing.assert_allclose(held[:2, 1], [10 - 5 * (Y.max() + WIDTH), 10 - 5 * (Y.min() - WIDTH)])


def test_ranges_of_parts_merge_and_rows_that_do_not_count_have_none():
    parts = ridge()
    for rows in np.array_split(np.argsort(Y), 3):
        parts.partial_fit(X[rows], Y[rows])
    np.testing.assert_array_equal(parts.target_range_, [Y.min(), Y.max()])
    parts.partial_fit(X[:2], np.array([1e9, -1e9]), sample_weight=np.zeros(2))
    np.testing.assert_array_equal(parts.target_range_, [Y.min(), Y.max()])
    weights = (Y < 1).astype(float)
    np.testing.assert_array_equal(ridge().fit(X, Y, sample_weight=weights).target_range_, [Y.min(), Y[Y < 1].max()])


def test_a_part_that_is_refused_leaves_the_range():
    parts = ridge().partial_fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        parts.partial_fit(X[:2], np.array([1e9, np.nan]))
    np.testing.assert_array_equal(parts.target_range_, [Y.min(), Y.max()])


@SOME_ARE_HELD
def test_means_of_counts_are_held_and_stay_positive():
    counts = RNG.poisson(np.exp(X[:, 0]))
    fitted = FeatureRegressor(**OF_COUNTS).fit(X, counts)
    held = fitted.predict(FAR)
    assert held[0] == 2 * counts.max() - counts.min()
    assert 0 < held[1] < 1e-3
    assert FeatureRegressor(margin=None, **OF_COUNTS).fit(X, counts).predict(FAR)[0] > 1e6


def test_ranges_beyond_float64_hold_nothing():
    fitted = ridge(margin=1e300).fit(X, 1e10 * Y)
    np.testing.assert_array_equal(fitted.predict(FAR), fitted.solution_.predict(FAR))


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureRegressor])
@pytest.mark.parametrize("margin", [-1, np.nan, np.inf, "wide", True])
def test_a_margin_is_a_number_of_widths_or_none(cls, margin):
    with pytest.raises(ParameterError, match="margin must be"):
        cls(margin=margin).fit(X, Y)


@pytest.mark.parametrize("cls", [FeatureLogistic, FeatureSVC, RandomFeatures])
def test_columns_that_random_features_lose_to_rounding_are_named(cls):
    """A time in nanoseconds beside other columns took all that these say: scores fell to those of a constant."""
    rows = np.column_stack([X, np.full(len(X), 1.7e18)])
    model = cls(lengthscale=1.0, num_features=16, random_state=0)
    with pytest.warns(UserWarning, match=f"columns {X.shape[1]} of X are 1.7e\\+18 lengthscales from 0"):
        model.fit(rows, np.median(Y) < Y)
