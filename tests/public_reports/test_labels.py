"""Logistic regression: weights, their unit, and the classes."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka

linear_model = pytest.importorskip("sklearn.linear_model")
S = ka.solvers
RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
Y = np.where(X[:, 0] + 0.3 * RNG.standard_normal(120) > 0, "b", "a")
PHI = ka.random_features(ka.kernels.Gaussian(1.5), 3, 40, rng=0)


def test_chances_of_two_classes_and_of_several():
    """scikit-learn/scikit-learn#9939: of two classes, the multinomial model had other chances."""
    f = PHI(X)
    for labels in (Y, np.array(["z", "a", "m"])[np.argmax(X, axis=1)]):
        exact = linear_model.LogisticRegression(C=1 / 0.3, tol=1e-9, max_iter=10_000).fit(f, labels)
        fit = S.logistic(X, PHI, y=labels, penalty=0.3, tolerance=1e-9)
        assert list(fit.classes) == list(exact.classes_)
        assert_allclose(fit.predict_proba(X), exact.predict_proba(f), atol=1e-5)


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6])
def test_the_unit_of_weights_does_not_matter(unit):
    """scikit-learn/scikit-learn#10352: with all weights a thousandth as large, the fit was another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once, other = (S.logistic(X, PHI, y=Y, weights=weight * np.ones(120)) for weight in (1.0, unit))
    assert_allclose(other.penalty, unit * once.penalty)
    assert_allclose(other.predict_proba(X), once.predict_proba(X), atol=1e-3)


def test_the_unit_of_weights_of_few_rows_does_not_matter():
    """scikit-learn/scikit-learn#27455: nor may that of weights of classes matter; of few rows, folds tell nothing."""
    once, other = (S.logistic(X[:9], PHI, y=Y[:9], weights=weight * np.ones(9)) for weight in (1.0, 1e-4))
    assert_allclose(other.predict_proba(X), once.predict_proba(X), atol=1e-3)


def test_folds_are_judged_by_weights():
    """scikit-learn/scikit-learn#29416: the scores of penalties on rows left out took all rows for equal."""
    noise = RNG.choice(["a", "b"], 120)
    x, y = np.concatenate([X, RNG.standard_normal((120, 3))]), np.concatenate([Y, noise])
    weights = np.repeat([1.0, 1e-9], 120)
    share = 2.0  # half as many rows differ where those that weigh nothing are left out
    both = S.logistic(x, PHI, y=y, weights=weights)
    alone = S.logistic(X, PHI, y=Y)
    assert 0.3 < both.penalty * share / alone.penalty < 3.3
    assert_allclose(both.predict_proba(X), alone.predict_proba(X), atol=0.1)


def test_weights_are_copies():
    """scikit-learn/scikit-learn#15657: weights and copies led to other choices by cross-validation."""
    weights = RNG.integers(0, 4, 120)
    weighted = S.logistic(X, PHI, y=Y, weights=weights.astype(float))
    copied = S.logistic(np.repeat(X, weights, axis=0), PHI, y=np.repeat(Y, weights))
    assert_allclose(weighted.penalty, copied.penalty)
    assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=1e-6)


def test_many_copies_of_each_row():
    """scikit-learn/scikit-learn#21305: repeats as weights led to another fit. Penalties were of 4,096 rows, copies too.

    So 40 copies of each row left most rows out of the choice.
    """
    weights = RNG.integers(30, 60, 120).astype(float)
    copies = np.repeat(np.arange(120), weights.astype(int))
    weighted, copied = S.logistic(X, PHI, y=Y, weights=weights), S.logistic(X[copies], PHI, y=Y[copies])
    assert_allclose(copied.penalty, weighted.penalty)
    assert_allclose(copied.predict_proba(X), weighted.predict_proba(X), atol=1e-3)
    loss, y = {"loss": "poisson"}, np.round(np.exp(X[:, 0]))
    weighted = S.linear_model(X, PHI, y=y, weights=weights, **loss)
    copied = S.linear_model(X[copies], PHI, y=y[copies], **loss)
    assert_allclose(copied.penalty, weighted.penalty)
    assert_allclose(copied.predict(X), weighted.predict(X), atol=1e-3)


def test_classes_that_a_plane_divides():
    """scikit-learn/scikit-learn#18074: steps ended before the tolerance that was asked for."""
    fit = S.logistic(X, PHI, y=X[:, 0] > 0, penalty=1e-6, tolerance=1e-10)
    assert fit.converged
    f, chances = PHI(X), fit.predict_proba(X)[:, 1]
    slope = f.T @ (chances - (X[:, 0] > 0)) + 1e-6 * fit.weights
    assert np.max(np.abs(slope)) < 1e-6
