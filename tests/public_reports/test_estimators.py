"""Estimators: weights, sparse rows, inputs that stay as they are, sets without members, and intervals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import kernattn as ka

estimators = pytest.importorskip("kernattn.sklearn")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("objective", ["folds", "gcv", "evidence"])
def test_sparse_rows_have_an_intercept(objective):
    """scikit-learn/scikit-learn#13325: of sparse rows, leave-one-out chose penalties of fits without an intercept."""
    x = np.where(RNG.random((80, 6)) < 0.3, RNG.standard_normal((80, 6)), 0.0)
    y = 1000 + x @ np.arange(6.0) + RNG.standard_normal(80)
    model = estimators.FeatureRidge(num_features=16, objective=objective, random_state=0)
    dense = model.fit(x, y).predict(x)
    for kind in (sparse.csr_array, sparse.csc_matrix):
        assert_allclose(model.fit(kind(x), y).predict(kind(x)), dense, rtol=1e-9)


@pytest.mark.parametrize("linear", [True, False])
def test_twice_the_weight_and_the_penalty_of_sparse_rows(linear):
    """scikit-learn/scikit-learn#15438: of sparse rows, weights of 2 and twice the penalty gave another fit."""
    x, y = RNG.random((10, 3)), RNG.random(10)
    found = []
    for rows in (x, sparse.csr_array(x)):
        for factor in (1.0, 2.0):
            options = {"num_features": 16, "lengthscale": 1.0, "linear": linear, "random_state": 0}
            model = estimators.FeatureRidge(ridge=0.05 * factor, **options)
            found.append(model.fit(rows, y, sample_weight=np.full(10, factor)).predict(rows))
    for other in found[1:]:
        assert_allclose(other, found[0], rtol=1e-9)


@pytest.mark.parametrize("objective", ["folds", "gcv", "evidence"])
def test_the_fit_of_a_chosen_penalty(objective):
    """scikit-learn/scikit-learn#5364: with weights, a search and a fit of the penalty that it chose were others."""
    x = RNG.standard_normal((100, 4))
    y, weights = x[:, 0] + 0.3 * RNG.standard_normal(100), np.logspace(0, -2, 100)
    options = {"num_features": 32, "lengthscale": 2.0, "random_state": 0}
    chosen = estimators.FeatureRidge(objective=objective, **options).fit(x, y, sample_weight=weights)
    given = estimators.FeatureRidge(ridge=float(chosen.solution_.penalty[0]), **options)
    assert_allclose(given.fit(x, y, sample_weight=weights).predict(x), chosen.predict(x), atol=1e-9)


def test_large_weights_of_counts():
    """lightgbm-org/LightGBM#5420: of large weights, means of counts were beyond all counts, in one unit of weights."""
    x = RNG.uniform(0, 1, (300, 1))
    y, weights = RNG.poisson(np.exp(1 + x[:, 0])), np.exp(RNG.uniform(0, 14, 300))
    model = estimators.FeatureRegressor(loss="poisson", num_features=16, random_state=0)
    once = model.fit(x, y, sample_weight=weights).predict(x)
    assert np.max(once) < np.max(y)
    assert_allclose(model.fit(x, y, sample_weight=1e6 * weights).predict(x), once, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["FeatureLogistic", "FeatureClassifier", "FeatureSVC", "FeatureRidge", "FeatureRegressor", "FeatureGP"]
)
def test_weights_are_not_written_to(name):
    """scikit-learn/scikit-learn#18480: a fit multiplied the caller's weights by those of classes."""
    x, weights = RNG.standard_normal((60, 3)), RNG.uniform(1, 2, 60)
    y = (x[:, 0] > 0).astype(float) if name in ("FeatureLogistic", "FeatureClassifier", "FeatureSVC") else x[:, 0]
    before = x.copy(), weights.copy(), y.copy()
    for given in (x, weights, y):
        given.flags.writeable = False
    model = getattr(estimators, name)(num_features=8, lengthscale=1.0, random_state=0)
    model.fit(x, y, sample_weight=weights).predict(x)
    for given, kept in zip((x, weights, y), before, strict=True):
        assert_array_equal(given, kept)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_sets_without_members(kind):
    """rdkit/rdkit#9033: an empty set was like any. It is like another empty one (rdkit/rdkit#8263), and no other."""
    sets = np.array([[0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], float)
    wanted = [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]
    assert_array_equal(ka.kernels.Tanimoto()(kind(sets), kind(sets)), wanted)


def test_a_coverage_that_few_rows_cannot_give():
    """scikit-learn-contrib/MAPIE#980: of few rows, intervals ended at the largest residual without a word."""
    x = np.linspace(0, 1, 6)[:, None]
    model = estimators.FeatureRidge(lengthscale=1.0, num_features=6, ridge=0.1, random_state=0).fit(x, x[:, 0])
    with pytest.raises(ka.errors.ParameterError, match=r"at most 0[.]857143 with 6 rows; got 0[.]9"):
        model.predict_interval(x, x, x[:, 0], coverage=0.9)
    low, high = model.predict_interval(x, x, x[:, 0], coverage=0.8)
    assert np.all(low < high)
