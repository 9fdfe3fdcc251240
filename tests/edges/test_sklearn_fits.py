"""The estimators of kernattn.sklearn are ka.features and ka.solvers, at once and in parts."""

import pickle
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")

from sklearn.base import clone

import kernattn as ka
from edges.sklearn_cases import DRAWN, GIVEN, KERNEL, LABELS, PHI, REGRESSORS, W, X, Y, answer, fitted
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.sklearn import (
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
from kernattn.sklearn._candidates import line_of
from kernattn.sklearn._on_landmarks import Judge
from kernattn.solvers._digests import folds_of


def test_to_the_bit():
    np.testing.assert_array_equal(RandomFeatures(**GIVEN).fit_transform(X), PHI(X))
    phi = ka.features.nystrom(X, KERNEL, 32, method="rpcholesky", rng=3)
    np.testing.assert_array_equal(NystromFeatures(**GIVEN).fit_transform(X), phi(X))
    np.testing.assert_array_equal(RandomFeatures(estimator="rpcholesky", **GIVEN).fit_transform(X), phi(X))
    phi = ka.random_features(ka.kernels.Polynomial(3, 0.5, 1.0), 3, 32, rng=3)
    sketch = PolynomialSketchFeatures(3, gamma=0.5, coef0=1.0, num_features=32, random_state=3)
    np.testing.assert_array_equal(sketch.fit_transform(X), phi(X))
    m = ka.solvers.moments(X, PHI, y=Y, weights=W)
    ridge = FeatureRidge(ridge=0.3, **DRAWN).fit(X, Y, sample_weight=W)
    np.testing.assert_array_equal(ridge.predict(X), ka.solvers.ridge(m, 0.3).predict(X))
    m = ka.solvers.moments(X, PHI, weights=W)
    for whitened, solve in ((False, ka.solvers.pca), (True, ka.solvers.whiten)):
        found = FeaturePCA(4, whiten=whitened, **GIVEN).fit(X, sample_weight=W)
        phi = found.feature_map_(X)
        spread = np.cov(phi.T, aweights=W, bias=True)
        values = np.linalg.eigvalsh(spread)[::-1]
        np.testing.assert_allclose(found.explained_variance_, values[:4], rtol=1e-6)
        np.testing.assert_allclose(found.explained_variance_ratio_, values[:4] / values.sum(), rtol=1e-6)
        np.testing.assert_array_equal(found.transform(X), solve(m, 4).transform(X))
    mean = Y[0] + np.average(Y - Y[0], axis=0, weights=W)
    process = ka.solvers.gp(ka.solvers.moments(X, PHI, y=Y - mean, weights=W), noise=0.2, amplitude=[1.0, 2.0])
    got, std = FeatureGP(noise=0.2, amplitude=[1.0, 2.0], **DRAWN).fit(X, Y, W).predict(X, return_std=True)
    np.testing.assert_array_equal(got, process.mean(X) + mean)
    np.testing.assert_array_equal(std, np.sqrt(process.variance(X) + 0.2**2))


def test_scales_that_data_choose():
    m = ka.solvers.moments(X, PHI, y=Y[:, 0])
    np.testing.assert_array_equal(
        FeatureRidge(objective="evidence", **DRAWN).fit(X, Y[:, 0]).solution_.penalty,
        ka.solvers.ridge(m, lowest=1e-5).penalty,
    )
    process = ka.solvers.gp(
        ka.solvers.moments(X, PHI, y=Y[:, 0] - (Y[0, 0] + np.average(Y[:, 0] - Y[0, 0]))), lowest=1e-5
    )
    found = FeatureGP(**DRAWN).fit(X, Y[:, 0]).solution_
    np.testing.assert_array_equal(found.noise, process.noise)
    np.testing.assert_array_equal(found.amplitude, process.amplitude)


@pytest.mark.filterwarnings("ignore:the penalty that:UserWarning")
@pytest.mark.parametrize("objective", ["folds", "evidence", "gcv"])
def test_weights_of_every_size(objective):
    """Many rows of each kind leave no doubt: how many more there are changes nothing, nor do targets that are all 0."""
    x = np.random.default_rng(0).standard_normal((40, 2))
    for y in (np.sin(x[:, 0]), np.zeros(40)):
        fits = [
            FeatureRidge(num_features=16, objective=objective, random_state=0).fit(x, y, np.full(40, unit))
            for unit in (1e20, 1e180)
        ]
        np.testing.assert_allclose(*(fit.predict(x) for fit in fits), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP])
def test_a_weight_counts_also_where_data_choose_the_scales(cls):
    weights = np.random.default_rng(1).integers(0, 4, 90)
    one = cls(num_features=32, random_state=0).fit(X, Y[:, 0], sample_weight=weights)
    other = cls(num_features=32, random_state=0).fit(X.repeat(weights, axis=0), Y.repeat(weights, axis=0)[:, 0])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-4, atol=1e-4)
    small = cls(num_features=32, random_state=0).fit(X, Y[:, 0], sample_weight=np.full(90, 1 / 90))
    plain = cls(num_features=32, random_state=0).fit(X, Y[:, 0])
    np.testing.assert_allclose(small.predict(X), plain.predict(X), atol=1e-3)  # shares, which sum to 1


@pytest.mark.parametrize("scales", [{}, {"noise": 0.3, "amplitude": 1.5}], ids=["chosen", "given"])
def test_deviations_at_weights_that_are_shares(scales):
    """They are those at weights of 1: noise is that of a row of the mean weight."""
    plain, shares = (FeatureGP(**GIVEN, **scales).fit(X, Y, w) for w in (None, np.full(90, 1e-3)))
    for got, wanted in zip(*(each.predict(X, return_std=True) for each in (shares, plain)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("y", [Y, Y[:, 0]])
def test_folds_are_of_the_rows_alone(y):
    """Not of their order, their parts or their format; copies of a row are in one fold."""
    folds = folds_of(X)
    assert 10 < min(np.bincount(folds, minlength=5)) < max(np.bincount(folds)) < 30
    order = np.random.default_rng(0).permutation(90)
    np.testing.assert_array_equal(folds_of(X[order]), folds[order])
    np.testing.assert_array_equal(folds_of(sparse.csr_array(np.where(X > 0, X, -0.0))), folds_of(X * (X > 0)))
    whole, parts = FeatureRidge(**DRAWN).fit(X, y), FeatureRidge(**DRAWN)
    for here in (slice(40), slice(40, 90)):
        parts.partial_fit(X[here], y[here])
    chosen = ka.solvers.ridge([ka.solvers.moments(X[folds == i], PHI, y=y[folds == i]) for i in range(5)], lowest=1e-5)
    np.testing.assert_allclose(whole.solution_.penalty, chosen.penalty, rtol=1e-9)
    np.testing.assert_allclose(parts.solution_.penalty, chosen.penalty, rtol=1e-9)
    few = FeatureRidge(**DRAWN).fit(X[:3], y[:3])  # too few for folds
    assert np.isfinite(few.predict(X)).all()


@pytest.mark.parametrize("levels", [3, 10])
def test_copies_do_not_favour_the_mean(levels):
    """Few different rows: a fold left out lacks all copies of what it is asked for."""
    rng = np.random.default_rng(0)
    share = (np.arange(levels) + 0.5) / levels
    x = rng.integers(levels, size=(1000, 1))
    y = (rng.uniform(size=1000) < share[x[:, 0]]).astype(float)
    fit = FeatureRidge(num_features=64, random_state=0).fit(np.eye(levels)[x[:, 0]], y)
    assert np.mean((fit.predict(np.eye(levels)) - share) ** 2) < 0.1 * np.var(share)


def test_labels_of_copies_do_not_favour_the_mean():
    """Rows that come some ten times, with either label: folds by rows and labels held just the other label."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 10)] * 2), -1).reshape(-1, 2)
    share, rows = 0.5 + 0.35 * np.sin(2 * grid[:, 0]) * np.cos(1.5 * grid[:, 1]), rng.integers(100, size=1000)
    fit = FeatureRidge(num_features=64, random_state=0).fit(grid[rows], rng.uniform(size=1000) < share[rows])
    assert np.mean((fit.predict(grid) - share) ** 2) < 0.4 * np.var(share)


def test_no_evidence_of_targets_that_do_not_vary():
    both = np.column_stack([Y[:, 0], np.full(90, 0.1)])
    for x, y in ((X, both[:, 1]), (X, both), (X[:1], Y[:1])):
        with pytest.raises(ParameterError, match=r"y must vary in each column .* give both"):
            FeatureGP(amplitude=1.0, **GIVEN).fit(x, y)
    mean, std = FeatureGP(noise=0.3, amplitude=1.0, **GIVEN).fit(X[:1], Y[:1, 0]).predict(X[:1], return_std=True)
    np.testing.assert_allclose((mean, std), ([Y[0, 0]], [(0.09 / 1.09 + 0.09) ** 0.5]))


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP, FeaturePCA])
def test_parts_are_the_whole(cls):
    parts, whole = (cls(**DRAWN) for _ in range(2))
    y = [] if cls is FeaturePCA else [Y - Y[:30].mean(axis=0)]
    whole.fit(X, *y, sample_weight=W)
    for i in range(0, 90, 30):
        here = slice(i, i + 30)
        parts.partial_fit(X[here], *(each[here] for each in y), sample_weight=W[here])
        parts = pickle.loads(pickle.dumps(parts))
    assert parts.moments_.n == 90
    np.testing.assert_allclose(parts.moments_.gram, whole.moments_.gram)
    np.testing.assert_allclose(answer(parts), answer(whole), rtol=0.01 if cls is FeatureGP else 1e-6, atol=0.01)


def test_few_rows_that_choose_for_good():
    for given in ({}, {"lengthscale": 1.0, "estimator": "uniform"}):
        with pytest.warns(UserWarning, match="the first 1 rows choose the lengthscale or the landmarks"):
            FeatureRidge(num_features=8, random_state=0, **given).partial_fit(X[:1], Y[:1])
    with pytest.warns(UserWarning, match="the first 90 rows choose"):
        FeatureClassifier(num_features=8, random_state=0).partial_fit(X, LABELS)
    FeatureRidge(num_features=8, random_state=0).partial_fit(np.tile(X, (2, 1)), np.tile(Y, (2, 1)))


@pytest.mark.parametrize("cls", [RandomFeatures, NystromFeatures, PolynomialSketchFeatures])
def test_the_first_part_draws(cls):
    one = cls(num_features=32, random_state=3)
    phi = one.partial_fit(X[:50]).feature_map_
    assert one.partial_fit(X).feature_map_ is phi
    np.testing.assert_array_equal(one.transform(X), fitted(cls, X[:50]).transform(X))
    assert one.fit(X).feature_map_ is not phi


def test_kernels():
    usual = ka.kernels.usual_lengthscale(X)

    def kernel(kernel, lengthscale=None):
        return fitted(RandomFeatures, kernel=kernel, lengthscale=lengthscale).feature_map_.kernel

    assert kernel("gaussian") == ka.kernels.Gaussian(usual)
    assert kernel("matern", [1.0, 2.0, 3.0]) == ka.kernels.Matern(lengthscale=[1.0, 2.0, 3.0])
    assert kernel(ka.kernels.Matern(2.5)) == ka.kernels.Matern(2.5, 1.0)
    assert kernel(ka.kernels.Matern(2.5), "scale") == ka.kernels.Matern(2.5, usual)
    assert kernel("softmax") == ka.kernels.Softmax()
    assert kernel("laplacian") == ka.kernels.Laplacian(usual)
    weighted = FeatureRidge(num_features=16, lengthscale="scale").fit(X, Y, sample_weight=W).feature_map_.kernel
    assert weighted == ka.kernels.Gaussian(ka.kernels.usual_lengthscale(X, W))


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
    x = np.random.default_rng(0).standard_normal((300, 8))
    usual = ka.kernels.usual_lengthscale(x)
    labels = x @ np.arange(8.0) > np.random.default_rng(1).standard_normal(300)
    plane = FeatureLogistic(random_state=0, linear=False).fit(x, labels)
    assert isinstance(FeatureLogistic(random_state=0).fit(x, labels).feature_map_, ka.features.Linear)
    assert plane.feature_map_.kernel.lengthscale in (4 * usual, 8 * usual)
    along = (
        FeatureLogistic(lengthscale="ard", random_state=0).fit(x, x[:, 0] ** 2 > 0.5).feature_map_.kernel.lengthscale
    )
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


def test_variance_of_landmarks_goes_back_to_the_prior():
    process = FeatureGP(noise=0.1, amplitude=2.0, **GIVEN).fit(X, Y[:, 0])
    mean, std = process.predict(np.full((1, 3), 50.0), return_std=True)
    np.testing.assert_allclose(mean, Y[:, 0].mean())
    np.testing.assert_allclose(std**2, [2.0**2 + 0.1**2])


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"kernel": "gauss"}, ParameterError, "kernel must be one of additive_chi2,"),
        ({"kernel": 3}, DTypeError, "kernel must be one of .* or a kernel"),
        ({"kernel": "softmax", "lengthscale": 1.0}, ParameterError, "lengthscale must be None for Softmax"),
        (
            {"kernel": ka.kernels.Gaussian(2.0), "lengthscale": 5.0},
            ParameterError,
            "beside Gaussian.*2.0.*got 5.0",
        ),
        ({"kernel": ka.kernels.Gaussian([1, 2, 3]), "lengthscale": "scale"}, ParameterError, "which has its own; got"),
        ({"kernel": ka.kernels.Periodic(), "lengthscale": 2.0}, ParameterError, "got 2.0: search kernel__lengthscale"),
        ({"kernel": 2 * ka.kernels.Matern(), "lengthscale": 2.0}, ParameterError, "kernel__kernel__lengthscale"),
        ({"lengthscale": "median"}, ParameterError, "lengthscale must be a positive .*'scale'.* or None; got 'median'"),
        ({"lengthscale": [1.0, 2.0]}, ShapeError, "lengthscale has 2 entries"),
        ({"num_features": 0}, ParameterError, "num_features"),
        ({"num_features": 0, "estimator": "uniform"}, ParameterError, "num_features"),
        ({"estimator": "positve"}, ParameterError, "must be 'auto' or .* phase, .* rpcholesky, .* for Gaussian"),
        ({"kernel": ka.kernels.Matern() + ka.kernels.ArcCosine(), "estimator": 3}, ParameterError, "one of greedy, "),
        ({"projection": "orthagonal"}, ParameterError, "projection"),
    ],
)
def test_refused_parameters(parameters, error, words):
    for cls in (RandomFeatures, FeatureRidge):
        with pytest.raises(error, match=words):
            fitted(cls, **parameters)


@pytest.mark.parametrize("ridge", ["best", 0.0, [0.1, 1.0], np.nan])
@pytest.mark.parametrize("cls", [FeatureRidge, FeatureLogistic])
def test_refused_ridges(cls, ridge):
    """By the name of the parameter, and before any work."""
    work = "_logistic.logistic" if cls is FeatureLogistic else "_on_moments.sum_rows"
    said = pytest.raises((ParameterError, ShapeError), match=r"^ridge must be .*; got ")
    with mock.patch(f"kernattn.sklearn.{work}", side_effect=AssertionError), said:
        cls(ridge=ridge).fit(X, np.sign(Y[:, 0]))


@pytest.mark.parametrize("name", sorted(ka.kernels.KERNELS))
def test_kernels_by_name(name):
    x = np.abs(X)
    for estimator in ("auto", "uniform"):
        size = 27 if (name, estimator) == ("additive_chi2", "auto") else 32
        assert fitted(RandomFeatures, x, kernel=name, estimator=estimator).transform(x).shape == (90, size)


@pytest.mark.parametrize(("dim", "most", "size"), [(10, 256, 250), (3, 256, 255), (30, 256, 210), (300, 256, 300)])
def test_additive_chi2_takes_the_sizes_that_it_has(dim, most, size):
    """Odd multiples of d, up to the number that is asked for."""
    x = np.random.default_rng(0).random((20, dim))
    assert RandomFeatures("additive_chi2", num_features=most).fit_transform(x).shape == (20, size)


def test_all_components():
    assert fitted(FeaturePCA, n_components=None).transform(X).shape == (90, 32)
    white = fitted(FeaturePCA, n_components=None, whiten=True).transform(X)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(white.shape[1]), atol=1e-6)
    for given in (0, 33, 2.0):
        with pytest.raises(ParameterError, match="n_components must be"):
            fitted(FeaturePCA, n_components=given)


def test_refused_rows():
    for weights, words in ((-W, "zero or more"), (0 * W, "not zero in all"), (W[:5], "a weight for each row")):
        for cls in REGRESSORS:
            with pytest.raises(ValueError, match=words):
                cls(**GIVEN).fit(X, Y[:, 0], sample_weight=weights)
    with pytest.raises(ParameterError, match="method must be one of"):
        fitted(NystromFeatures, method="best")
    with pytest.raises(ValueError, match="same targets"):
        FeatureRidge(**GIVEN).partial_fit(X, Y).partial_fit(X, Y[:, 0])
    one = FeatureRidge(**GIVEN).partial_fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="2 rows at least; got 1"):
        one.predict(X)
    assert one.partial_fit(X[1:], Y[1:]).predict(X).shape == Y.shape


@pytest.mark.parametrize("kind", [FeatureRidge, FeatureClassifier, FeatureGP, FeaturePCA])
def test_rows_of_weight_0_are_not_there(kind):
    """A batch of them changes nothing, a class of them is none, and fits are those of the other rows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 1) if kind is FeatureClassifier else np.sin(x[:, 0]) + 0.1 * x[:, 1]
    weights = np.where(y == 2, 0.0, 1.0) if kind is FeatureClassifier else np.where(x[:, 2] > 0.5, 0.0, 1.0)
    kept = weights > 0

    def made():
        return kind(num_features=16, lengthscale=1.0, random_state=0)

    def answers(fitted):
        return fitted.transform(x) if kind is FeaturePCA else fitted.predict(x)

    whole, alone = made().fit(x, y, sample_weight=weights), made().fit(x[kept], y[kept])
    np.testing.assert_allclose(np.abs(answers(whole)), np.abs(answers(alone)), rtol=1e-6, atol=1e-9)
    before = answers(whole)
    whole.partial_fit(x, y, sample_weight=np.zeros(120))
    np.testing.assert_array_equal(answers(whole), before)
    with pytest.raises(ParameterError, match="not zero in all rows"):
        made().partial_fit(x, y, sample_weight=np.zeros(120))


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


def test_rows_that_are_all_alike_predict_the_mean():
    x, y = np.full((40, 3), 1.7e9), np.random.default_rng(0).standard_normal((40, 2)) + 1e6
    model = FeatureRidge(num_features=16, random_state=0).fit(x, y)
    np.testing.assert_allclose(model.predict(np.array([x[0], 2 * x[0]])), np.tile(y.mean(axis=0), (2, 1)), rtol=1e-12)
    model = FeatureRidge(num_features=16, random_state=0).fit(sparse.csr_array(x), y)
    np.testing.assert_allclose(model.predict(sparse.csr_array(x[:1])), y.mean(axis=0)[None], rtol=1e-12)
    x[-1, 0] += 1  # float32 does not tell it
    model = FeatureRidge(ka.kernels.Gaussian(1.0), num_features=16, random_state=0, ridge=1e-6).fit(x, y)
    np.testing.assert_allclose(model.predict(x[-1:]), y[-1:], rtol=1e-7)


@pytest.mark.parametrize("cls", [FeatureRegressor, FeatureSVC])
def test_losses_of_rows_that_are_all_alike(cls):
    model = cls(num_features=8, random_state=0).fit(np.ones((40, 2)), np.arange(40) % 4 == 0)
    assert len(set(model.predict(np.ones((3, 2))))) == 1


@pytest.mark.parametrize("unit", [2.0**-600, 2.0**600])
@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_losses_of_targets_in_any_unit(loss, unit):
    """Their squares, by which a lengthscale is found, may be beyond float64."""
    model = FeatureRegressor(loss=loss, num_features=8, random_state=0)
    wanted = model.fit(X, Y[:, 0], W).predict(X)
    with np.errstate(all="raise", under="ignore"):
        got = clone(model).fit(X, unit * Y[:, 0], unit * W).predict(X) / unit
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-8)


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


def test_weights_too_small_for_a_ratio_are_refused():
    x = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(ParameterError, match="weights must be larger"):
        FeatureGP(num_features=8, random_state=0).fit(x, x[:, 0], np.full(30, 1e-312))
