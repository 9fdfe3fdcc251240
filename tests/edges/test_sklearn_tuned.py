"""What data choose of an estimator: lengthscales, the line alone or beside a kernel, landmarks or random features."""

from unittest import mock

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone

import kernattn as ka
from edges.sklearn_cases import GIVEN, LABELS, W, X, Y
from kernattn.errors import ParameterError
from kernattn.sklearn import (
    FeatureClassifier,
    FeatureGP,
    FeatureLogistic,
    FeatureRegressor,
    FeatureRidge,
    RandomFeatures,
)
from kernattn.sklearn._candidates import line_of
from kernattn.sklearn._on_landmarks import Judge
from kernattn.solvers._digests import folds_of


def test_order_has_no_part_in_a_search_with_many_optima():
    """The mean of targets in another order differs by rounding, by which steps went to another optimum."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 3))
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(60)
    rows = rng.permutation(60)
    given = {"kernel": "laplacian", "lengthscale": "ard", "num_features": 16, "random_state": 0}
    one, other = (FeatureGP(**given).fit(x[each], y[each]).feature_map_ for each in (slice(None), rows))
    assert one.kernel == other.kernel


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP, FeatureClassifier])
def test_a_lengthscale_that_targets_tune(cls):
    """As `tune` finds it, or near; the order of rows and copies have no part in it, nor has the unit of targets."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(300)
    if cls is FeatureClassifier:
        y = np.sign(y)

    def found(x, y, lengthscale=None, **weights):
        alone = {} if cls is FeatureGP else {"linear": False}
        estimator = cls(num_features=16, lengthscale=lengthscale, random_state=0, **alone).fit(x, y, **weights)
        return estimator.feature_map_.kernel.lengthscale

    phi = ka.random_features(ka.kernels.Gaussian(ka.kernels.usual_lengthscale(x)), 2, 256, rng=0)
    wanted = ka.solvers.tune(x, (y - y.mean()) / y.std(), phi).lengthscale
    if cls is not FeatureGP:  # by factors of 2
        assert wanted / 2 < found(x, y) < wanted * 2
        wanted = found(x, y)
    np.testing.assert_allclose(found(x, y), wanted, rtol=1e-3)
    order = rng.permutation(300)
    np.testing.assert_allclose(found(x[order], y[order]), wanted, rtol=1e-3)
    np.testing.assert_allclose(found(x.repeat(2, axis=0), y.repeat(2)), wanted, rtol=1e-3)
    weighted = found(x, y, sample_weight=rng.uniform(1e-9, 1, 300))  # whose usual lengthscale is another
    np.testing.assert_allclose(weighted, wanted, rtol=1e-3 if cls is FeatureGP else 1.1)
    along, across = found(x, y, "ard")
    assert along < 1.5 < 4 < across
    assert found(x, np.sign(y) if cls is FeatureClassifier else 1e6 * y) == pytest.approx(wanted, rel=1e-3)
    assert found(x[:20], y[:20]) == ka.kernels.usual_lengthscale(x[:20])  # too few to tell


def test_judges_on_landmarks_are_those_of_fits():
    """The evidence, and squared errors on folds, are those of `solvers` on the same landmarks."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 2))
    y = np.stack([np.sin(2 * x[:, 0]), x[:, 1] ** 2], axis=1) + 0.3 * rng.standard_normal((150, 2))
    y, kernel = (y - y.mean(axis=0)) / y.std(axis=0), ka.kernels.Gaussian(0.7)
    line = ka.features.linear(np.ones(2))
    judge = Judge(x, y, line(x).T)
    phi = ka.features.nystrom(x, kernel, landmarks=x[:128]) + line
    of = folds_of(x)
    folds = [ka.solvers.moments(x[of == i], phi, y=y[of == i]) for i in range(5)]
    best = ka.solvers.ridge(ka.solvers.moments(x, phi, y=y), objective="evidence")
    assert judge.log_evidence(kernel) == pytest.approx(np.sum(best.log_evidence), abs=0.5)
    least = ka.solvers.cross_validate(folds, np.geomspace(1e-3, 1e3, 100)).mse.min(axis=0)
    assert judge.left_out(kernel) == pytest.approx(150 * np.sum(least), rel=0.01)
    assert Judge(x, y, None).log_evidence(ka.kernels.Gaussian(1e-6)) < judge.log_evidence(None)


@pytest.mark.parametrize("better", [True, False])
def test_the_kernel_has_to_be_better_on_folds_too(better):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(60)
    with mock.patch.object(Judge, "left_out", lambda _, kernel: float(better == (kernel is None))):
        phi = FeatureRidge(num_features=16, random_state=0).fit(x, y).feature_map_
        in_parts = FeatureRidge(num_features=16, random_state=0).partial_fit(np.tile(x, (2, 1)), np.tile(y, 2))
    assert isinstance(phi, ka.features.Concatenated if better else ka.features.Linear)
    assert isinstance(in_parts.feature_map_, ka.features.Concatenated)  # later rows would have no kernel


@pytest.mark.filterwarnings("ignore:the penalty that folds:UserWarning")
def test_classes_that_are_apart_are_told_by_a_line():
    """All losses on rows left out are then nearly 0, and the least is chance."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    x[:, 0] += 4 * np.sign(x[:, 0])
    phi = FeatureLogistic(num_features=16, random_state=0).fit(x, x[:, 0] > 0).feature_map_
    assert isinstance(phi, ka.features.Linear)


def test_heavy_tails_are_no_signal():
    """The evidence explains far targets by a short lengthscale; rows left out prefer one that is nearly a line."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 6))
    y = x[:, 0] + x[:, 1] + rng.standard_t(1.5, 400)
    ridge = FeatureRidge(num_features=64, random_state=0, linear=False).fit(x, y)
    process = FeatureGP(num_features=64, random_state=0).fit(x, y)
    usual = ka.kernels.usual_lengthscale(x)
    assert process.feature_map_.kernel.lengthscale < 6 * usual < ridge.feature_map_.kernel.lengthscale


def test_a_lengthscale_that_labels_choose():
    given = {"num_features": 64, "random_state": 0}
    x = np.random.default_rng(0).standard_normal((300, 8))
    usual = ka.kernels.usual_lengthscale(x)
    labels = x @ np.arange(8.0) > np.random.default_rng(1).standard_normal(300)
    plane = FeatureLogistic(**given, linear=False).fit(x, labels)
    assert isinstance(FeatureLogistic(**given, ridge=1.0).fit(x, labels).feature_map_, ka.features.Linear)
    assert plane.feature_map_.kernel.lengthscale in (4 * usual, 8 * usual)
    few = x[:150, :3]
    along = FeatureLogistic(lengthscale="ard", **given).fit(few, few[:, 0] ** 2 > 0.5).feature_map_.kernel.lengthscale
    assert along[0] < 0.5 * np.min(along[1:])


def test_estimators_that_data_shape():
    got = RandomFeatures(estimator="favor_sharp", num_features=8, lengthscale=2.0, random_state=0).fit(X).feature_map_
    wanted = ka.random_features(ka.kernels.Gaussian(2.0), 3, 8, "favor_sharp", data=X, rng=0)
    assert got.fingerprint == wanted.fingerprint


def test_frequencies_of_kernels_by_axes_are_iid():
    phi = RandomFeatures("cauchy", **GIVEN).fit(X).feature_map_
    wanted = ka.random_features(ka.kernels.Cauchy(1.5), 3, 32, projection="iid", rng=3)
    assert phi.fingerprint == wanted.fingerprint
    cauchy, laplacian = ka.kernels.Cauchy(1.5), ka.kernels.Laplacian()
    for kernel in (cauchy * laplacian, laplacian + ka.kernels.Gaussian(), 2.0 * cauchy * ka.kernels.Gaussian()):
        phi = RandomFeatures(kernel, num_features=32, random_state=3).fit(X).feature_map_
        assert phi.fingerprint == ka.random_features(kernel, 3, 32, projection="iid", rng=3).fingerprint


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP, FeatureRegressor, FeatureClassifier])
def test_landmarks_are_the_default_of_rows_at_once(cls):
    """Neither copies, weights nor order choose them; parts have none, nor kernels that are not stationary."""
    given = GIVEN | ({} if cls is FeatureGP else {"linear": False, "ridge": 0.1})
    y = LABELS if cls is FeatureClassifier else Y[:, 0]
    plain = cls(**given).fit(X, y)
    assert isinstance(plain.feature_map_, ka.features.Nystrom)
    counts = np.random.default_rng(2).integers(1, 4, 90)
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(90), counts))
    for x, targets, weights in ((X[rows], y[rows], None), (X, y, W), (sparse.csr_array(X[::-1]), y[::-1], None)):
        other = cls(**given).fit(x, targets, sample_weight=weights)
        np.testing.assert_array_equal(other.feature_map_.landmarks, plain.feature_map_.landmarks)
    shifted = np.c_[1e9 + np.arange(90.0) / 90]  # float32 does not tell these rows apart
    assert cls(**given | {"lengthscale": 0.01}).fit(shifted, y).feature_map_.landmarks.shape == (32, 1)
    for other in ({"projection": "iid"}, {"kernel": "polynomial", "lengthscale": None}, {"estimator": "auto"}):
        assert not isinstance(cls(**given | other).fit(X, y).feature_map_, ka.features.Nystrom)
    wide = cls(**given).fit(sparse.csr_array(np.pad(X, ((0, 0), (0, 1022)))), y)
    assert not isinstance(wide.feature_map_, ka.features.Nystrom)
    if hasattr(cls, "partial_fit"):
        parts = cls(**given).partial_fit(X[:45], y[:45])
        assert not isinstance(parts.feature_map_, ka.features.Nystrom)


def test_a_line_beside_the_kernel():
    """On request, or where folds tune: predictions are then right far from all rows, and units do not matter."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    y = x @ [1.0, -2.0, 3.0] + 0.1 * rng.standard_normal(60)
    far = 20 * x[:5]
    for linear in (True, None):
        model = FeatureRidge(num_features=16, random_state=0, linear=linear, margin=None).fit(x, y)
        np.testing.assert_allclose(model.predict(far), far @ [1.0, -2.0, 3.0], rtol=0.02, atol=1.0)
    units = np.array([1e-6, 1.0, 1e6])
    given = {"estimator": "auto", "num_features": 16, "random_state": 0, "linear": True, "ridge": 1e-3, "margin": None}
    mine, other = (FeatureRidge(ka.kernels.Gaussian(by), **given).fit(x * by, y) for by in (np.ones(3), units))
    np.testing.assert_allclose(other.predict(far * units), mine.predict(far), rtol=1e-6)
    assert FeatureRidge(num_features=16, linear=False, random_state=0).fit(x, y).feature_map_.num_features_of(3) == 16
    with pytest.raises(ParameterError, match="linear must be"):
        FeatureRidge(linear="yes").fit(x, y)


def test_a_line_of_columns_whose_squares_are_beyond_float64():
    with np.errstate(all="raise", under="ignore"):
        line = line_of(2.0**600 * X, W)
    np.testing.assert_array_equal(line.lengthscale, 2.0**600 * line_of(X, W).lengthscale)


@pytest.mark.parametrize("unit", [1e-200, 1e-32, 5e29, 1e32])
@pytest.mark.parametrize("lengthscale", ["scale", "tune", "ard"])
def test_lengthscales_of_rows_in_any_unit(lengthscale, unit):
    """None that nobody gave is refused by its number alone."""
    model = FeatureRidge(num_features=8, random_state=0, lengthscale=lengthscale)
    if unit == 5e29:  # twice the usual is no lengthscale
        assert np.isfinite(model.fit(unit * X, Y).predict(unit * X)).all()
    else:
        with pytest.raises(ParameterError, match="X must be in other units"):
            model.fit(unit * X, Y)


def test_lengthscales_of_columns_begin_at_their_spreads():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3))
    y, units = np.sin(x[:, 0]) + x[:, 1], np.array([1e-6, 1.0, 1e6])
    model = FeatureRidge(num_features=32, random_state=0, lengthscale="ard", estimator="auto")
    fits = [clone(model).fit(x * by, y) for by in (1.0, units)]
    np.testing.assert_allclose(fits[1].predict(x * units), fits[0].predict(x), atol=0.01)


def test_rows_that_float32_does_not_tell_apart_tell_no_kernel_on_folds():
    x = 1e9 + np.random.default_rng(0).random((30, 2))
    with np.errstate(all="raise"):
        assert Judge(x, np.sin(x[:, :1]), None).left_out(ka.kernels.Gaussian()) == np.inf
