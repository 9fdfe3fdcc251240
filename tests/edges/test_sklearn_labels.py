"""The classifiers of kernattn.sklearn are ka.solvers of labels."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.exceptions import ConvergenceWarning

import kernattn as ka
from edges.sklearn_cases import DRAWN, GIVEN, LABELS, PHI, W, X, Y
from kernattn.errors import ParameterError
from kernattn.sklearn import FeatureClassifier, FeatureLogistic, FeatureRidge
from kernattn.solvers._losses.logistic_penalty import hold_out


def test_labels():
    given = np.array(["b", "a"])[(X[:, 0] > 0).astype(int)]
    signs = np.where(given == "b", 1.0, -1.0)
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=signs, weights=W), 0.5)
    one = FeatureClassifier(ridge=0.5, **DRAWN).fit(X, given, sample_weight=W)
    np.testing.assert_array_equal(one.decision_function(X), fit.predict(X))
    np.testing.assert_array_equal(one.predict(X), np.where(fit.predict(X) > 0, "b", "a"))
    signs = np.where(LABELS[:, None] == ["a", "b", "c"], 1.0, -1.0)
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=signs), 0.5)
    several = FeatureClassifier(ridge=0.5, **DRAWN).fit(X, LABELS)
    np.testing.assert_array_equal(several.decision_function(X), fit.predict(X))
    np.testing.assert_array_equal(several.predict(X), several.classes_[np.argmax(fit.predict(X), axis=1)])
    assert several.score(X, LABELS) > 0.9
    for labels in (LABELS == "a", np.unique(LABELS, return_inverse=True)[1].astype("i2")):
        assert FeatureClassifier(**GIVEN).fit(X, labels).predict(X).dtype == labels.dtype


def test_labels_in_parts():
    order = np.argsort(LABELS, kind="stable")
    x, labels = X[order], LABELS[order]
    whole, parts = (FeatureClassifier(**DRAWN) for _ in range(2))
    for i in range(0, 90, 30):
        classes = ["c", "b", "a"] if i in (0, 30) else None
        parts.partial_fit(x[i : i + 30], labels[i : i + 30], classes, W[i : i + 30])
    np.testing.assert_allclose(parts.decision_function(X), whole.fit(x, labels, W).decision_function(X), rtol=1e-6)
    with pytest.raises(ParameterError, match=r"y must hold the classes \['a', 'b', 'c'\]; got \['d'\] too: .* classes"):
        parts.partial_fit(X[:2], ["a", "d"])
    with pytest.raises(ParameterError, match="classes must be those of the first call"):
        parts.partial_fit(X[:2], ["a", "b"], classes=["a", "b"])
    with pytest.raises(ParameterError, match="two classes or more; got one class, 'a'"):
        FeatureClassifier(**GIVEN).partial_fit(X[:2], ["a", "a"])
    np.testing.assert_array_equal(parts.classes_, ["a", "b", "c"])


def test_probabilities():
    for labels in (LABELS, LABELS == "a"):
        fit = ka.solvers.logistic(X, PHI, y=labels, penalty=0.1, weights=W)
        one = FeatureLogistic(ridge=0.1, **GIVEN).fit(X, labels, sample_weight=W)
        np.testing.assert_array_equal(one.decision_function(X), fit.scores(X))
        np.testing.assert_array_equal(one.predict_proba(X), fit.predict_proba(X))
        np.testing.assert_array_equal(one.predict(X), one.classes_[np.argmax(fit.predict_proba(X), axis=1)])
    kept = LABELS != "b"
    without = FeatureLogistic(**GIVEN).fit(X[kept], LABELS[kept])
    np.testing.assert_allclose(FeatureLogistic(**GIVEN).fit(X, LABELS, kept).predict_proba(X), without.predict_proba(X))
    with pytest.raises(ParameterError, match="two classes or more"):
        FeatureLogistic(**GIVEN).fit(X, LABELS, LABELS == "a")


def test_a_fit_that_does_not_converge():
    with pytest.warns(ConvergenceWarning, match="not converged in 1 steps"):
        fit = FeatureLogistic(ridge=1e-6, max_iter=1, **GIVEN).fit(X, LABELS)
    assert fit.n_iter_ == 1


def test_without_an_intercept():
    for cls, y in ((FeatureRidge, Y), (FeatureClassifier, LABELS), (FeatureLogistic, LABELS)):
        assert not np.any(cls(fit_intercept=False, **GIVEN).fit(X, y).solution_.intercept)
        assert np.all(cls(**GIVEN).fit(X, y).solution_.intercept)


def test_the_ridge_is_the_largest_within_one_standard_error():
    rng = np.random.default_rng(0)
    told = X[:, 0] + 0.5 * rng.standard_normal(90) > 0
    for labels, least in ((told, 0.0), (rng.permutation(told), 10.0)):  # rows that tell nothing of labels
        model = FeatureLogistic(**GIVEN).fit(X, labels)
        choices = [
            hold_out(X, labels, None, model.feature_map_, np.unique(labels), True, cautious=cautious)
            for cautious in (False, True)
        ]
        assert choices[0].loss == choices[1].loss
        assert choices[0].penalty <= choices[1].penalty == model.solution_.penalty > least
        assert choices[0].penalty == ka.solvers.logistic(X, model.feature_map_, y=labels).penalty
