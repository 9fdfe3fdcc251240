"""The classifiers of kernattn.sklearn are ka.solvers of labels."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.exceptions import ConvergenceWarning

import kernattn as ka
from edges.sklearn_cases import DRAWN, GIVEN, LABELS, PHI, W, X, Y
from kernattn.errors import ParameterError
from kernattn.sklearn import FeatureClassifier, FeatureLogistic, FeatureRidge
from kernattn.sklearn._candidates import line_of
from kernattn.solvers._losses.logistic_penalty import _most_cautious, hold_out


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


def test_a_cautious_ridge_is_the_largest_within_half_a_standard_error():
    n = 400
    rng = np.random.default_rng(0)
    apart = rng.standard_normal(n)
    apart = (apart - apart.mean()) / apart.std()
    least, shares = rng.random(n), np.full(n, 1 / n)
    for more, wanted in ((0.49, 10.0), (0.51, 1.0)):  # of the standard error, 1 / sqrt(n)
        losses = {10.0: least + more / n**0.5 + apart, 1.0: least, 0.1: least + 1.0}
        assert _most_cautious(losses, shares, n) == wanted


def test_a_penalty_whose_neighbours_are_bad_is_no_cautious_choice():
    """Losses of few rows fall by chance: here at 1e-3, between penalties that lose much more."""
    losses = {1e1: 0.5, 1e0: 0.2, 10**-0.5: 0.11, 1e-1: 0.12, 10**-1.5: 0.14, 1e-2: 0.2, 10**-2.5: 0.4, 1e-3: 0.1}
    losses |= {10**-3.5: 0.5, 1e-4: 0.7}
    rows = {penalty: np.full(50, loss) for penalty, loss in losses.items()}
    assert _most_cautious(rows, np.full(50, 0.02), 50) == 1e-1


def test_rows_that_a_line_divides_are_told_by_it():
    """150 of them: the log loss of new rows is near the least of all penalties."""
    more = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, slope, new = rng.standard_normal((150, 4)), rng.standard_normal(4), rng.standard_normal((2000, 4))
        labels, right = x @ slope > 0, (new @ slope > 0).astype(int)
        phi, classes = line_of(x, None), np.array([False, True])
        chosen = hold_out(x, labels, None, phi, classes, True, cautious=True).penalty
        fits = [ka.solvers.logistic(x, phi, y=labels, penalty=each) for each in (chosen, 1e-4, 1e-3, 1e-2, 1e-1)]
        losses = [-np.mean(np.log(fit.predict_proba(new)[np.arange(2000), right])) for fit in fits]
        more.append(losses[0] - min(losses))
    assert np.median(more) < 0.03
    assert np.mean(more) < 0.05


def test_the_ridge_is_a_cautious_one():
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
