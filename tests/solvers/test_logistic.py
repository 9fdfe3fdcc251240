"""Logistic regression against the gradient of its sum, and against scikit-learn."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from kernattn.solvers._digests import folds_of
from xp import KINDS, to_numpy

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((400, 3)), RNG.standard_normal((50, 3))
LATENT = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.7 * RNG.standard_normal(400)
TWO, THREE = LATENT > 0.3, np.array(["low", "middle", "top"])[np.digitize(LATENT, [-0.5, 0.7])]
W = RNG.integers(0, 3, 400).astype(float)
PHI = ka.random_features(ka.kernels.Gaussian(1.5), dim=3, num_features=24, rng=0)


def gradient(fit, phi, hit, w, ridge):
    apart = w * (expit(phi @ fit.weights + fit.intercept) - hit)
    return np.append(phi.T @ apart + ridge * fit.weights, apart.sum())


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
def test_the_gradient_is_0(ridge, intercept, weights):
    fit = ka.solvers.logistic(X, PHI, y=TWO, penalty=ridge, weights=weights, intercept=intercept, tolerance=1e-16)
    left = gradient(fit, PHI(X), TWO, np.ones(400) if weights is None else weights, ridge)
    np.testing.assert_allclose(left[: None if intercept else -1], 0, atol=1e-6)
    assert fit.converged
    assert fit.iterations < 100
    assert intercept or fit.intercept == 0


@pytest.mark.parametrize("ridge", [0.05, 2.0])
def test_scikit_learn(ridge):
    linear = pytest.importorskip("sklearn.linear_model")
    features, theirs = (
        PHI(X),
        linear.LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=5000, solver="newton-cholesky"),
    )
    fit = ka.solvers.logistic(X, PHI, y=TWO, penalty=ridge, tolerance=1e-13)
    theirs.fit(features, TWO)
    np.testing.assert_allclose(fit.weights, theirs.coef_[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(fit.intercept, theirs.intercept_[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(fit.predict_proba(NEW), theirs.predict_proba(PHI(NEW)), atol=1e-7)
    np.testing.assert_array_equal(fit.predict(NEW), theirs.predict(PHI(NEW)))
    rest = theirs.fit(features, THREE)
    fit = ka.solvers.logistic(X, PHI, y=THREE, penalty=ridge, tolerance=1e-13)
    np.testing.assert_array_equal(fit.classes, rest.classes_)
    np.testing.assert_allclose(fit.predict_proba(NEW), rest.predict_proba(PHI(NEW)), atol=1e-7)
    np.testing.assert_array_equal(fit.predict(NEW), rest.predict(PHI(NEW)))


def test_blocks_are_the_whole():
    whole = ka.solvers.logistic(X, PHI, y=THREE, penalty=0.1, weights=W, tolerance=1e-13)
    cuts = [slice(0, 150), slice(150, 151), slice(151, 400)]
    blocks = [(X[cut], THREE[cut], W[cut]) for cut in cuts]
    for given in (blocks, lambda: iter(blocks)):
        fit = ka.solvers.logistic(given, PHI, penalty=0.1, tolerance=1e-13)
        np.testing.assert_allclose(fit.weights, whole.weights, atol=1e-8)
        np.testing.assert_allclose(fit.intercept, whole.intercept, atol=1e-8)


def test_rows_of_weight_0_are_no_rows():
    kept = THREE != "top"
    less = ka.solvers.logistic(X[kept], PHI, y=THREE[kept], penalty=0.1, tolerance=1e-13)
    for given in ((X, THREE, kept * 1.0), [(X[~kept], THREE[~kept], np.zeros(np.sum(~kept))), (X[kept], THREE[kept])]):
        x, y, weights = given if isinstance(given, tuple) else (given, None, None)
        fit = ka.solvers.logistic(x, PHI, y=y, penalty=0.1, weights=weights, tolerance=1e-13)
        assert fit.classes.tolist() == ["low", "middle"]
        np.testing.assert_allclose(fit.weights, less.weights, atol=1e-8)
    with pytest.raises(ParameterError, match="two classes or more in rows that count; got"):
        ka.solvers.logistic(X, PHI, y=THREE, penalty=0.1, weights=(THREE == "top") * 1.0)


@pytest.mark.parametrize("ridge", [1e-6, 1e-2])
def test_classes_that_a_plane_divides(ridge):
    x = np.concatenate([X[:50] - 100, X[50:100] + 100])
    fit = ka.solvers.logistic(x, ka.features.elu1(), y=np.arange(100) >= 50, penalty=ridge)
    assert fit.converged
    assert np.isfinite(fit.weights).all()
    np.testing.assert_array_equal(fit.predict(x), np.arange(100) >= 50)


def test_rows_that_say_nothing_of_the_class():
    fit = ka.solvers.logistic(X, PHI, y=RNG.permutation(TWO), penalty=1e4)
    np.testing.assert_allclose(fit.predict_proba(NEW)[:, 1], TWO.mean(), atol=0.02)


def test_too_few_steps_are_said():
    fit = ka.solvers.logistic(X, PHI, y=TWO, penalty=1e-3, max_iterations=1)
    assert not fit.converged
    assert "NOT converged" in repr(fit)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    wanted = ka.solvers.logistic(X, PHI, y=TWO, penalty=0.1)
    with kind.wide():
        fit = ka.solvers.logistic(kind.asarray(X), PHI, y=TWO, penalty=0.1)
        chances = fit.predict_proba(kind.asarray(NEW))
    assert kind.holds(chances)
    np.testing.assert_allclose(to_numpy(chances), wanted.predict_proba(NEW), atol=1e-6)


def test_labels_may_be_a_column_of_a_table():
    labels = pytest.importorskip("pandas").Series(THREE)
    fit, same = (ka.solvers.logistic(X, PHI, y=y, penalty=1.0) for y in (labels, THREE))
    np.testing.assert_array_equal(fit.weights, same.weights)


def test_more_errors():
    for labels in ([1, "a"], [None, "a"]):
        with pytest.raises(DTypeError, match="y must hold numbers, booleans or strings"):
            ka.solvers.logistic(X[:2], PHI, y=np.array(labels, object), penalty=1.0)
    for weights, error in (([1.0, 1.0], DTypeError), (np.ones((2, 1)), ShapeError), (np.zeros(2), ParameterError)):
        with pytest.raises(error, match="weights"):
            ka.solvers.logistic(X[:2], PHI, y=[0, 1], penalty=1.0, weights=weights)
    with pytest.raises(DTypeError, match="y must hold numbers, booleans or strings, all of one kind"):
        ka.solvers.logistic([(X[:2], [0, 1]), (X[:2], ["a", "b"])], PHI, penalty=1.0)
    with pytest.raises(ParameterError, match="weights must not be 0 in all rows"):
        ka.solvers.logistic(X[:2], PHI, y=[0, 1], penalty=1.0, weights=np.zeros(2))
    with pytest.raises(ParameterError, match="must return an iterable of blocks; got None"):
        ka.solvers.logistic(lambda: None, PHI, penalty=1.0)
    with pytest.raises(ParameterError, match="penalty must be well above the rounding"):
        ka.solvers.logistic(np.tile(X[:1], (200, 1)), PHI, y=np.arange(200) % 2, penalty=1e-30)


@pytest.mark.parametrize("x", [X.tolist(), None, X.astype(int), X.astype(object), sparse.coo_array(X), X[:, :2]])
def test_blocks_of_other_rows(x):
    with pytest.raises((DTypeError, ShapeError), match="x must"):
        ka.solvers.logistic([(X, TWO), (x, TWO)], PHI, penalty=1.0)


def test_errors():
    bad = X.copy()
    bad[3] = np.nan
    with pytest.raises(ParameterError, match="x must be finite; NaN or infinity in row 3"):
        ka.solvers.logistic(bad, PHI, y=TWO, penalty=1.0)
    with pytest.raises(ParameterError, match="y must be finite; NaN or infinity in row 1"):
        ka.solvers.logistic(X, PHI, y=np.where(np.arange(400) == 1, np.nan, 1.0), penalty=1.0)
    with pytest.raises(ParameterError, match="two classes or more"):
        ka.solvers.logistic(X, PHI, y=np.zeros(400), penalty=1.0)
    for ridge in (0.0, -1.0):
        with pytest.raises(ParameterError, match="penalty must be"):
            ka.solvers.logistic(X, PHI, y=TWO, penalty=ridge)
    with pytest.raises(ShapeError, match=r"x and y must be \(n, d\) and \(n,\)"):
        ka.solvers.logistic(X, PHI, y=TWO[:10], penalty=1.0)
    with pytest.raises(ParameterError, match="weights must be 0 or more; another number in row 0"):
        ka.solvers.logistic(X, PHI, y=TWO, weights=np.where(np.arange(400) == 0, -1.0, 1.0), penalty=1.0)
    with pytest.raises(ParameterError, match="walked again"):
        ka.solvers.logistic(iter([(X, TWO)]), PHI, penalty=1.0)
    with pytest.raises(ParameterError, match="a block must be"):
        ka.solvers.logistic([X], PHI, penalty=1.0)
    with pytest.raises(ParameterError, match="y must be given"):
        ka.solvers.logistic(X, PHI, penalty=1.0)
    with pytest.raises(EmptyInputError, match="no block"):
        ka.solvers.logistic([], PHI, penalty=1.0)
    with pytest.raises(DTypeError, match="phi"):
        ka.solvers.logistic(X, "gaussian", y=TWO, penalty=1.0)


def test_the_penalty_that_folds_prefer():
    """By the fits of scikit-learn to the same folds."""
    linear = pytest.importorskip("sklearn.linear_model")
    features, folds = PHI(X), folds_of(X)
    unit = np.mean(np.sum(features**2, axis=1))

    def held_out(power):
        total = 0.0
        for fold in range(5):
            there = folds != fold
            model = linear.LogisticRegression(C=1 / (unit * 10**power), solver="newton-cholesky")
            chances = model.fit(features[there], THREE[there]).predict_log_proba(features[~there])
            total -= chances[np.arange(len(chances)), np.searchsorted(model.classes_, THREE[~there])].sum()
        return total

    losses = {power: held_out(power) for power in (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)}
    found = ka.solvers.logistic(X, PHI, y=THREE).penalty
    assert losses[round(2 * np.log10(found / unit)) / 2] <= 1.002 * min(losses.values())


def test_a_choice_does_not_depend_on_order_copies_or_rows_of_weight_0():
    order = np.random.default_rng(1).permutation(len(X))
    wanted = ka.solvers.logistic(X, PHI, y=THREE).penalty
    np.testing.assert_allclose(ka.solvers.logistic(X[order], PHI, y=THREE[order]).penalty, wanted, rtol=1e-12)
    more, there = np.concatenate([X, NEW]), np.arange(450) < 400
    labels = np.concatenate([THREE, np.full(50, "other")])
    fit = ka.solvers.logistic(more, PHI, y=labels, weights=there * 1.0)
    np.testing.assert_allclose(fit.penalty, wanted, rtol=1e-12)
    twice = ka.solvers.logistic(np.tile(X, (2, 1)), PHI, y=np.tile(THREE, 2)).penalty
    counted = ka.solvers.logistic(X, PHI, y=THREE, weights=np.full(400, 2.0)).penalty
    np.testing.assert_allclose(twice, counted, rtol=1e-12)


def test_choices_that_rows_do_not_tell():
    assert ka.solvers.logistic(X[:20], PHI, y=TWO[:20]).penalty == 1
    once = np.where(np.arange(400) == 7, "odd", THREE)  # in one fold alone, whose others lack it
    assert ka.solvers.logistic(X, PHI, y=once).penalty != 1
    apart = np.concatenate([X[:50] - 100, X[50:100] + 100])
    with pytest.warns(UserWarning, match="the penalty that folds prefer is the least of its range"):
        ka.solvers.logistic(apart, ka.features.elu1(), y=np.arange(100) >= 50)
    with pytest.raises(ParameterError, match="penalty must be given where x comes in blocks"):
        ka.solvers.logistic([(X, TWO)], PHI)


def test_a_least_penalty_of_classes_that_overlap_is_no_sign_of_classes_apart():
    """Losses of rows left out hardly differ between small penalties, of which chance takes the least."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 1))
    line = ka.features.Linear(np.ones(1), np.zeros(1))
    with warnings.catch_warnings(action="error"):
        fit = ka.solvers.logistic(x, line, y=10 * x[:, 0] + rng.logistic(size=300) > 0)
    assert fit.penalty < 1.1e-5 * np.mean(x**2)


def test_features_that_are_not_kept(monkeypatch):
    kept = ka.solvers.logistic(X, PHI, y=THREE, penalty=0.1)
    monkeypatch.setattr("kernattn.solvers._losses.sweeps.KEPT", 100)
    np.testing.assert_array_equal(ka.solvers.logistic(X, PHI, y=THREE, penalty=0.1).weights, kept.weights)


@pytest.mark.parametrize("seed", [14, 26, 29])
def test_the_sum_cannot_fall_by_more_than_the_tolerance(seed):
    n = (6, 20, 30, 80)[seed % 4]
    x = 30 * np.random.default_rng(seed).standard_normal((n, 4))  # a plane divides them: the sum flattens as it falls
    y, phi = x[:, 0] > np.median(x[:, 0]), ka.features.elu1()

    def total(tolerance):
        fit = ka.solvers.logistic(x, phi, y=y, penalty=1e-3, tolerance=tolerance)
        scores = phi(x) @ fit.weights + fit.intercept
        return np.sum(np.logaddexp(0, np.where(y, -scores, scores))) + 0.5e-3 * np.sum(fit.weights**2)

    assert total(1e-6) <= total(1e-14) * (1 + 1e-6)


@pytest.mark.parametrize("penalty", [0.3, None])
def test_units_of_weights_do_not_matter_and_weights_are_copies(penalty):
    times = np.random.default_rng(8).integers(0, 4, len(X))
    whole = ka.solvers.logistic(np.repeat(X, times, axis=0), PHI, y=np.repeat(THREE, times), penalty=penalty)
    for unit in (1.0, 2.0**-900, 2.0**900):
        given = None if penalty is None else penalty * unit
        with np.errstate(all="raise", under="ignore"):
            fit = ka.solvers.logistic(X, PHI, y=THREE, weights=times * unit, penalty=given)
        np.testing.assert_allclose(fit.penalty / unit, whole.penalty, rtol=1e-10)
        np.testing.assert_allclose(fit.scores(X), whole.scores(X), rtol=1e-10 if unit == 1 else 1e-3, atol=1e-3)
