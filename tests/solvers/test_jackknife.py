"""Jackknife+ intervals against refits without each row."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from xp import KINDS, to_numpy

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((30, 2)), RNG.standard_normal((7, 2))
Y = np.column_stack([np.sin(X[:, 0]) + 1e6, X[:, 1] ** 2]) + 0.2 * RNG.standard_normal((30, 2))
PHI = ka.random_features(ka.kernels.Gaussian(1.5), dim=2, num_features=12, rng=0)
PENALTY = np.array([0.1, 2.0])


def fitted(x=X, y=Y, penalty=PENALTY, intercept=True):
    return ka.solvers.ridge(ka.solvers.moments(x, PHI, y=y), penalty, intercept=intercept)


@pytest.mark.parametrize("coverage", [0.6, 0.9])
@pytest.mark.parametrize("intercept", [True, False])
def test_refits(intercept, coverage):
    low, high = ka.solvers.jackknife(fitted(intercept=intercept), NEW, x=X, y=Y, coverage=coverage)
    below, above = [], []
    for i in range(30):
        less = fitted(np.delete(X, i, 0), np.delete(Y, i, 0), intercept=intercept)
        size = np.abs(Y[i] - less.predict(X[i : i + 1])[0])
        below.append(less.predict(NEW) - size)
        above.append(less.predict(NEW) + size)
    rank = int(np.ceil(coverage * 31))
    np.testing.assert_allclose(low, np.sort(below, axis=0)[30 - rank], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(high, np.sort(above, axis=0)[rank - 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coverage", [0.6, 0.99])
def test_many_rows_of_which_few_are_near_the_quantile(coverage):
    """The products with all of 1,000 rows, as they stand in the formula; far rows have leverages of their own."""
    rng = np.random.default_rng(1)
    x, new = rng.standard_normal((1000, 2)), rng.standard_normal((1100, 2))
    x[::100], new[::7] = 3 * x[::100], 3 * new[::7]
    y = np.column_stack([x[:, 0] ** 2 + rng.standard_t(2, 1000), np.round(x[:, 1])])
    y[500:600] = np.mean(y, axis=0)
    fit = fitted(x, y)
    gram = fit._spectrum.vectors * (1 / (fit._spectrum.values + PENALTY[:, None]))[:, None]
    features, there = (PHI(rows) - np.mean(PHI(x), axis=0) for rows in (x, new))
    products = there @ gram @ fit._spectrum.vectors.T @ features.T + 1 / 1000  # (c, m, n)
    residual = ((y - fit.predict(x)) / (1 - fit.leverage(x))).T[:, None]
    ends = fit.predict(new).T[..., None] - products * residual + np.array([-1, 1])[:, None, None, None] * abs(residual)
    rank = int(np.ceil(coverage * 1001 * (1 - 1e-15)))
    low, high = ka.solvers.jackknife(fit, new, x=x, y=y, coverage=coverage)
    np.testing.assert_allclose(low.T, np.sort(ends[0], axis=-1)[..., 1000 - rank], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(high.T, np.sort(ends[1], axis=-1)[..., rank - 1], rtol=1e-9, atol=1e-9)


def test_one_target_and_the_estimator():
    pytest.importorskip("sklearn")
    from kernattn.sklearn import FeatureRidge

    model = FeatureRidge(lengthscale=1.5, num_features=12, ridge=0.1, random_state=0).fit(X, Y[:, 1])
    got = model.predict_interval(NEW, X, Y[:, 1], coverage=0.8)
    wanted = ka.solvers.jackknife(model.solution_, NEW, x=X, y=Y[:, 1], coverage=0.8)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.shape == (7,)
        np.testing.assert_array_equal(ours, theirs)
    assert np.all(got.low < model.predict(NEW))
    assert np.all(model.predict(NEW) < got.high)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    wanted = ka.solvers.jackknife(fitted(), NEW, x=X, y=Y)
    with kind.wide():
        found = ka.solvers.jackknife(fitted(), kind.asarray(NEW), x=kind.asarray(X), y=kind.asarray(Y))
    for ours, theirs in zip(found, wanted, strict=True):
        assert kind.holds(ours)
        np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-9)


def test_ranks_are_of_decimals():
    """0.55 * 100 is above 55 in floating point, and the quantile is the 55th all the same."""
    x = RNG.standard_normal((99, 2))
    fit = fitted(x, x[:, 0] ** 2, 0.1)
    exactly = ka.solvers.jackknife(fit, NEW, x=x, y=x[:, 0] ** 2, coverage=0.5499)
    for ours, theirs in zip(ka.solvers.jackknife(fit, NEW, x=x, y=x[:, 0] ** 2, coverage=0.55), exactly, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_target_that_is_constant():
    y = np.column_stack([Y[:, 0], np.full(30, 0.1)])
    low, high = ka.solvers.jackknife(fitted(y=y), NEW, x=X, y=y)
    np.testing.assert_allclose([low[:, 1], high[:, 1]], 0.1)


def test_errors():
    fit = fitted()
    large = Y * [1e6, 1.0]  # beside which the other target is small
    with pytest.raises(ParameterError, match="x and y must be the rows that were fitted"):
        ka.solvers.jackknife(fitted(y=large), NEW, x=X, y=np.column_stack([large[:, 0], Y[::-1, 1]]))
    for options in ({"x": X[:-1], "y": Y[:-1]}, {"y": Y[:, 0]}, {"y": Y[::-1].copy()}, {"x": X + 1.0}):
        with pytest.raises(ParameterError, match="x and y must be the rows that were fitted"):
            ka.solvers.jackknife(fit, NEW, **({"x": X, "y": Y} | options))
    weighted = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y, weights=np.arange(1.0, 31)), PENALTY)
    with pytest.raises(ParameterError, match="without weights"):
        ka.solvers.jackknife(weighted, NEW, x=X, y=Y)
    for coverage, words in (
        (0.4, "coverage must be between"),
        (0.99, "coverage must be at most 0.967742 with 30 rows"),
    ):
        with pytest.raises(ParameterError, match=words):
            ka.solvers.jackknife(fit, NEW, x=X, y=Y, coverage=coverage)
    with pytest.raises(ShapeError, match=r"new must be \(n, d\)"):
        ka.solvers.jackknife(fit, NEW[0], x=X, y=Y)
