"""Numbers of extreme sizes, and parameters that fits read last: far targets, huge weights, features beyond float64."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")

from sklearn.base import is_classifier

import kernattn as ka
from kernattn.errors import KernattnError, ParameterError
from kernattn.sklearn import (
    ExactKernelRidge,
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

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(60)
GIVEN = {"num_features": 8, "random_state": 0}


@pytest.mark.parametrize("shift", [-1.7e9, 1e11])
@pytest.mark.parametrize(
    "estimator",
    [FeatureRidge(**GIVEN), FeatureGP(**GIVEN), FeatureRegressor(ridge=1.0, **GIVEN), ExactKernelRidge(ridge=0.1)],
    ids=repr,
)
def test_a_large_mean_leaves_the_choice_of_a_lengthscale(estimator, shift):
    """From 1e8 deviations on, targets passed for constant: no lengthscale was looked for."""
    plain = estimator.fit(X, Y).predict(X)
    np.testing.assert_allclose(estimator.fit(X, Y + shift).predict(X) - shift, plain, atol=0.02)


@pytest.mark.parametrize("shift", [-1.7e9, 1e11])
def test_a_large_mean_leaves_the_metric(shift):
    metric, other = (ka.solvers.learn_metric(X, each, num_landmarks=16, rounds=1) for each in (Y, Y + shift))
    assert metric.form == "diagonal"
    np.testing.assert_allclose(other.factor, metric.factor, rtol=1e-2)


def test_next_to_no_weight_leaves_the_choice_of_a_lengthscale():
    """A weight of 0 beside the largest made all targets NaN, and the usual lengthscale was taken."""
    fits = (FeatureRidge(**GIVEN).fit(X, Y, np.where(X[:, 1] < 1.5, 1e150, least)) for least in (1e130, 1e-200))
    plain, other = (fit.feature_map_.maps[0].kernel.lengthscale for fit in fits)
    assert other == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("by", [1e-250, 1e305])
def test_huge_weights_are_weights(by):
    """Sums were beyond float64: a prior's mean, or a line's, was infinite; or below it, and no metric was found."""
    weights = RNG.uniform(1, 2, 60)
    given = {"num_landmarks": 16, "rounds": 1}
    learnt = [ka.solvers.learn_metric(X, Y, weights=each, **given) for each in (weights, weights * by)]
    assert learnt[0].form == "diagonal"
    np.testing.assert_allclose(learnt[1].factor, learnt[0].factor, rtol=1e-4)
    for rows in (X, sparse.csr_array(X)):
        given = {"loss": "quantile", "ridge": by, "linear": True, "lengthscale": 1.0}
        fitted = FeatureRegressor(**GIVEN, **given).fit(rows, Y, weights * by).predict(rows)
        given["ridge"] = 1.0
        np.testing.assert_allclose(FeatureRegressor(**GIVEN, **given).fit(rows, Y, weights).predict(rows), fitted)


@pytest.mark.parametrize("by", [1e-20, 1e-6, 1e30])
@pytest.mark.parametrize("made", [FeatureLogistic, FeatureSVC])
def test_the_unit_of_weights_leaves_a_choice_of_a_ridge(made, by):
    """Weights of 1e30 were beyond float32, and probabilities those of chance; others chose another ridge."""
    fits = (made(lengthscale=1.0, **GIVEN).fit(X, Y > 0, np.full(60, each)) for each in (1.0, by))
    plain, other = (fit.solution_ for fit in fits)
    assert other.converged
    assert other.penalty / by == pytest.approx(plain.penalty, rel=1e-6)
    np.testing.assert_allclose(other.scores(X), plain.scores(X), atol=1e-2)


def test_the_mean_of_targets_with_huge_weights():
    process = FeatureGP(lengthscale=1.0, noise=0.1, amplitude=1.0, **GIVEN)
    plain = process.fit(X, Y + 1e3, np.ones(60)).y_mean_
    with pytest.raises(KernattnError):  # so many rows leave no variance
        process.fit(X, Y + 1e3, np.full(60, 1e307))
    assert plain == pytest.approx(Y.mean() + 1e3)
    shares = np.full(60, 1e-307)
    assert process.fit(X, Y + 1e3, shares).y_mean_ == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("light", [1e-20, 1e-100, 1e-300])
@pytest.mark.parametrize("every", [2, 60])
def test_quantiles_of_rows_of_next_to_no_weight_are_those_without(light, every):
    """Steps ended at the last that is allowed, in the narrow boxes of such rows, with predictions off by 2 %."""
    weights = np.where(np.arange(60) % every == 0, light, 1.0)
    phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=8, rng=0)
    given = {"loss": "quantile", "penalty": 0.1}
    fit = ka.solvers.linear_model(X, phi, y=Y, weights=weights, **given)
    kept = weights == 1
    without = ka.solvers.linear_model(X[kept], phi, y=Y[kept], **given)
    assert fit.converged
    assert fit.iterations <= without.iterations + 2
    np.testing.assert_allclose(fit.predict(X), without.predict(X), atol=1e-8)


def test_a_column_whose_squares_are_beyond_float64_is_no_warning():
    x = np.column_stack([X, np.full(60, 1e300 / 3)])
    with pytest.raises(ParameterError, match="must hold numbers up to"):
        FeatureRidge(lengthscale="ard", **GIVEN).fit(x, Y)


@pytest.mark.parametrize("margin", [1e300, 1.7e308])
def test_a_wide_margin_of_targets_that_are_all_alike(margin):
    """Infinity less infinity was each prediction of the second column."""
    y = np.stack([Y, np.full(60, 1e12)], axis=1)
    fitted = FeatureRidge(lengthscale=1.0, margin=margin, **GIVEN).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X)[:, 1], 1e12)


def test_predictions_beyond_their_dtype_are_infinite_without_a_warning():
    fitted = FeatureRidge(lengthscale=1.0, ridge=1.0, **GIVEN).fit(X.astype(np.float32), 1e60 * (Y + 5))
    assert np.all(fitted.predict(X.astype(np.float32)) == np.inf)


@pytest.mark.parametrize("ridge", [None, 1.0])
@pytest.mark.parametrize("made", [FeatureRidge, FeatureRegressor, FeatureLogistic, FeatureSVC])
def test_features_beyond_float64_are_named(made, ridge):
    """Losses gave an error of SciPy's, or NaN for predictions."""
    x = X.copy()
    x[3] *= 1e160
    with pytest.raises(ParameterError, match="features of x must be finite"):
        made("polynomial", ridge=ridge, **GIVEN).fit(x, Y > 0)


def test_targets_beyond_float64_are_named():
    weights = np.full(60, 1e200)
    with pytest.raises(ParameterError, match="y must be smaller"):
        FeatureRidge(lengthscale=1.0, **GIVEN).fit(X, 1e150 * Y, weights)
    with pytest.raises(ParameterError, match="y must be smaller"):
        ka.solvers.kernel_ridge(1e-100 * X, 1e200 * Y, ka.kernels.Polynomial(2), penalty=1e-300, exact=True)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_sketches_beyond_float64_are_infinite_without_a_warning(layout):
    x = np.array([[1.0, 1e200], [1.0, 2.0]])
    features = PolynomialSketchFeatures(num_features=2, random_state=0).fit_transform(layout(x))
    assert np.isinf(features[0]).any()
    assert np.isfinite(features[1]).all()


@pytest.mark.parametrize("made", [FeatureRidge, FeatureGP])
def test_intervals_of_sparse_rows(made):
    """Both take CSR, and refused it for intervals."""
    x = np.where(X > 0, X, 0.0)
    fitted = made(lengthscale=1.0, **GIVEN).fit(sparse.csr_array(x), Y)
    dense = fitted.predict_interval(x[:9], x, Y)
    csr = fitted.predict_interval(sparse.csr_array(x[:9], dtype=np.float32), sparse.csr_array(x), Y)
    for each, other in zip(dense, csr, strict=True):
        assert other.dtype == np.float32
        np.testing.assert_allclose(each, other, rtol=1e-4)


WRONG = {
    "amplitude": 0.0,
    "epsilon": 1.0,
    "estimator": "none",
    "fit_intercept": "yes",
    "linear": 1,
    "max_iter": 0,
    "n_components": 0,
    "noise": -1.0,
    "num_features": "all",
    "objective": "best",
    "quantile": 1.0,
    "random_state": -1,
    "whiten": 1,
}
MADE = (
    *(FeatureClassifier, FeatureGP, FeatureLogistic, FeaturePCA, FeatureRegressor, FeatureRidge, FeatureSVC),
    *(ExactKernelRidge, NystromFeatures, RandomFeatures),
)
CASES = [(made, name) for made in MADE for name in WRONG if name in made().get_params(deep=False)]


@pytest.mark.parametrize(("made", "name"), CASES)
def test_a_parameter_is_refused_before_any_work(made, name, monkeypatch):
    """A search, a draw or the sums came first."""

    def work(*_, **__):
        raise AssertionError("rows were looked at")

    for place in ("_drawn.tune_by_evidence", "_drawn.tune_by_landmarks", "_drawn.tune_by_log_loss", "_maps.nystrom"):
        monkeypatch.setattr(f"kernattn.sklearn.{place}", work)
    for place in ("_maps.random_features", "_exact.tune_by_landmarks", "_maps.usual_of"):
        monkeypatch.setattr(f"kernattn.sklearn.{place}", work)
    given = {name: WRONG[name]} | ({"lengthscale": 1.0} if name == "estimator" else {})
    with pytest.raises(ParameterError, match=f"{name} must"):
        made(**given).fit(X, Y > 0 if is_classifier(made()) else Y)


def test_rows_in_any_order_of_memory_have_one_fit():
    """Turned rows of a learned metric differed in their last digits, and landmarks are chosen by these."""
    x = np.random.default_rng(0).standard_normal((300, 9))
    y = np.sin(x[:, 0]) * x[:, 1] + 0.1 * x[:, 2]
    models = [
        FeatureRidge(metric="learned", num_features=40, ridge=1.0, random_state=0).fit(rows, y)
        for rows in (x, np.asfortranarray(x))
    ]
    np.testing.assert_array_equal(models[1].predict(x), models[0].predict(x))


def test_exact_fits_centre_as_the_others_do():
    """Sums of huge weights were infinite: a second mean of targets beside the one that knows."""
    fits = [
        ExactKernelRidge(lengthscale=1.0, ridge=0.1 * w, random_state=0).fit(X, Y + 5, np.full(60, w))
        for w in (1.0, 1e307)
    ]
    np.testing.assert_allclose(fits[1].predict(X), fits[0].predict(X), rtol=1e-9)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("loss", ["huber", "logistic"])
def test_features_beyond_float32_choose_a_penalty_in_silence(loss):
    """They were cast to float32 where folds choose: a warning of NumPy, and penalties by infinities."""
    y, options = (Y, {"loss": loss}) if loss == "huber" else ((np.median(Y) < Y) + 0, {})
    solve = ka.solvers.linear_model if loss == "huber" else ka.solvers.logistic
    maps = (ka.features.linear(np.full(2, unit)) for unit in (1.0, 2.0**-96))
    one, huge = (solve(2.0**64 * X, phi, y=y, **options) for phi in maps)
    np.testing.assert_allclose(huge.penalty / 2.0**192, one.penalty, rtol=1e-6)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_targets_times_roots_of_weights_beyond_float64_are_refused_in_silence():
    with pytest.raises(ParameterError, match="y must be smaller"):
        FeatureRidge(lengthscale=1.0, num_features=64, random_state=0).fit(X, 1e170 * Y, np.full(60, 1e280))


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
def test_weights_far_apart_choose_a_penalty_in_silence():
    """Where a fold had all the weight, the others' curvature was 0, and divided by."""
    w = RNG.uniform(0.1, 2.0, 60)
    w[0] = 1e300
    model = FeatureSVC(ridge=1.0, **GIVEN).fit(X, np.median(Y) < Y, w)
    assert np.isfinite(model.decision_function(X)).all()


def test_weights_that_are_too_small_are_named():
    with pytest.raises(ParameterError, match="targets, times the roots of their weights, must be 0, or larger"):
        FeatureRidge(lengthscale=1.0, **GIVEN).fit(X, Y, np.full(60, 1e-300))
