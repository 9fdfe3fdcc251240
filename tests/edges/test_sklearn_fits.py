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
from kernattn.solvers._digests import folds_of


@pytest.mark.parametrize(
    "made", [FeatureRidge, FeatureGP, FeatureClassifier, ExactKernelRidge], ids=lambda m: m.__name__
)
def test_bfloat16_is_read_as_float64(made):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    rows, targets = X.astype(dtype), np.sign(X[:, 0]).astype(dtype)
    options = {"lengthscale": 2.0, "ridge": 0.5} if made is ExactKernelRidge else DRAWN
    found, wanted = (
        made(**options).fit(*given).predict(given[0])
        for given in ((rows, targets), (rows.astype(np.float64), targets.astype(np.float64)))
    )
    np.testing.assert_array_equal(found, wanted)


def test_bfloat16_tensors_are_read_as_float64():
    torch = pytest.importorskip("torch")
    rows, targets = torch.tensor(X).bfloat16(), torch.tensor(Y).bfloat16()
    found = FeatureRidge(**DRAWN).fit(rows, targets).predict(rows)
    wanted = FeatureRidge(**DRAWN).fit(rows.double().numpy(), targets.double().numpy()).predict(rows.double().numpy())
    np.testing.assert_array_equal(found, wanted)


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


def test_weights_too_small_for_a_ratio_are_refused():
    x = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(ParameterError, match="weights must be larger"):
        FeatureGP(num_features=8, random_state=0).fit(x, x[:, 0], np.full(30, 1e-312))
