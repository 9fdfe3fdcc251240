"""Ridge regression and Gaussian processes against dense algebra: with landmarks at all rows, features lose nothing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from public_reports import dense

K, F, S = ka.kernels, ka.features, ka.solvers
RNG = np.random.default_rng(0)


def exact_map(x, lengthscale=1.0):
    return F.nystrom(x, K.Gaussian(lengthscale), landmarks=x)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        pytest.param(np.linspace(0, 10, 10), 2 * np.linspace(0, 10, 10), id="scikit-learn/scikit-learn#6128"),
        pytest.param(np.linspace(0, 4 * np.pi, 100), np.sin(np.linspace(0, 4 * np.pi, 100)), id="GPflow/GPflow#900"),
    ],
)
def test_matrices_that_rounding_makes_indefinite(x, y):
    """The Cholesky factor of a kernel matrix did not exist."""
    rows = x[:, None]
    process = S.gp(S.moments(rows, exact_map(rows, 1.47), y=y), noise=1e-2, amplitude=3.19**0.5)
    k = 3.19 * dense.gaussian(rows, rows, 1.47)
    mean, variance, evidence = dense.process(k, k, np.full(len(x), 3.19), y, 1e-2)
    assert_allclose(process.mean(rows), mean, atol=1e-5)
    assert_allclose(process.variance(rows), variance, atol=1e-6)
    assert_allclose(process.log_evidence, evidence, rtol=1e-5)


def test_the_kernel_of_products_of_rows():
    """scikit-learn/scikit-learn#8252: the linear kernel is of rank d, and its matrix had eigenvalues below 0."""
    x = RNG.standard_normal((50, 3))
    phi = F.nystrom(x, K.Polynomial(1), landmarks=x)
    assert_allclose(phi(x) @ phi(x).T, x @ x.T, atol=1e-6)


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(1.0, id="scikit-learn/scikit-learn#18065"),
        pytest.param(100.0, id="scikit-learn/scikit-learn#29697"),  # all targets had the deviation of one
    ],
)
def test_each_target_has_its_own_deviation(scale):
    x = RNG.uniform(0, 5, (30, 1))
    y = np.column_stack([np.sin(3 * x[:, 0]), scale * np.cos(x[:, 0])]) + 0.05 * RNG.standard_normal((30, 2))
    phi, new = exact_map(x), np.linspace(0, 5, 4)[:, None]
    together = S.gp(S.moments(x, phi, y=y)).variance(new)
    alone = [S.gp(S.moments(x, phi, y=column)).variance(new) for column in y.T]
    assert together.shape == (4, 2)
    assert_allclose(together, np.stack(alone, axis=1), rtol=1e-4)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_deviations_are_in_the_unit_of_the_targets(unit):
    """scikit-learn/scikit-learn#15782: standard deviations of predictions lay in [0, 1] whatever the targets."""
    estimators = pytest.importorskip("kernattn.sklearn")
    x = RNG.uniform(-2, 2, (60, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * RNG.standard_normal(60)
    new = np.array([[-3.0], [0.0], [0.7]])

    def predicted(targets):
        process = estimators.FeatureGP(lengthscale=0.7, num_features=32, random_state=0)
        return process.fit(x, targets).predict(new, return_std=True)

    for found, once in zip(predicted(unit * y), predicted(y), strict=True):
        assert_allclose(found, unit * once, rtol=1e-5)


def test_few_rows_of_a_large_mean():
    """scikit-learn/scikit-learn#20934: four rows of targets near 1,000 got wildly different fits."""
    estimators = pytest.importorskip("kernattn.sklearn")
    x, y = np.array([[20.0], [20.0], [140.0], [140.0]]), np.array([740.0, 680.0, 1260.0, 1200.0])
    process = estimators.FeatureGP(
        lengthscale=60.0, estimator="rpcholesky", num_features=2, noise=30.0, amplitude=400.0, random_state=0
    )
    k = 400.0**2 * dense.gaussian(x, x, 60.0)
    mean, variance, _ = dense.process(k, k, np.full(4, 400.0**2), y - y.mean(), 30.0)
    found, deviation = process.fit(x, y).predict(x, return_std=True)
    assert_allclose(found, mean + y.mean(), rtol=1e-5)
    assert_allclose(deviation**2 - 30.0**2, variance, rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "noise"),
    [
        pytest.param(np.float32, 1e-2, id="cornellius-gp/gpytorch#1840"),
        pytest.param(np.float64, 1e-4, id="cornellius-gp/gpytorch#864"),
        pytest.param(np.float64, 1e-1, id="cornellius-gp/gpytorch#1600"),
        pytest.param(np.float32, 1e-1, id="cornellius-gp/gpytorch#1884"),
        pytest.param(np.float64, 1e-3, id="GPflow/GPflow#1813"),
    ],
)
def test_variances_are_not_negative(dtype, noise):
    x = RNG.uniform(-1, 1, (80, 1)).astype(dtype)
    y = (np.sin(3 * x[:, 0]) + 0.3 * np.cos(12 * x[:, 0])).astype(dtype)
    for phi in (exact_map(x), ka.random_features(K.Gaussian(), 1, 64, rng=0)):
        variance = S.gp(S.moments(x, phi, y=y), noise=noise, amplitude=1.0).variance(x)
        assert variance.dtype == dtype
        assert np.min(variance) >= 0
        assert np.max(variance) < 1.001 * noise**2 + (1e-5 if dtype == np.float32 else 1e-9)


def test_a_variance_does_not_depend_on_the_rows_beside_it():
    """cornellius-gp/gpytorch#635: variances were negative, and others when asked for one by one."""
    x = RNG.uniform(-2, 2, (50, 2))
    process = S.gp(S.moments(x, exact_map(x), y=np.sin(x[:, 0])), noise=0.1, amplitude=1.0)
    new = RNG.uniform(-3, 3, (20, 2))
    assert_allclose(process.variance(new), [process.variance(row[None])[0] for row in new], rtol=1e-9, atol=1e-12)


def test_the_evidence_of_features_is_that_of_their_kernel():
    """cornellius-gp/gpytorch#1446: the quadratic term of low-rank matrices was wrong."""
    x, y = RNG.standard_normal((40, 2)), RNG.standard_normal(40)
    phi = ka.random_features(K.Gaussian(), 2, 16, rng=0)
    process = S.gp(S.moments(x, phi, y=y), noise=0.3, amplitude=1.7)
    k = 1.7**2 * phi(x) @ phi(x).T
    _, _, evidence = dense.process(k, k, np.diagonal(k), y, 0.3)
    assert_allclose(process.log_evidence, evidence, rtol=1e-9)


def test_noise_that_differs_from_row_to_row():
    """meta-pytorch/botorch#1528: noise given for each row failed with random features."""
    x, y, noise = RNG.standard_normal((30, 2)), RNG.standard_normal(30), RNG.uniform(0.2, 2, 30)
    phi, new = ka.random_features(K.Gaussian(), 2, 16, rng=0), RNG.standard_normal((5, 2))
    process = S.gp(S.moments(x, phi, y=y, weights=noise**-2.0), noise=1.0, amplitude=1.0)
    k, across, same = (a @ b.T for a, b in ((phi(x), phi(x)), (phi(new), phi(x)), (phi(new), phi(new))))
    mean, variance, _ = dense.process(k, across, np.diagonal(same), y, noise)
    assert_allclose(process.mean(new), mean, rtol=1e-8)
    assert_allclose(process.variance(new), variance, rtol=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("weights", "rows", "penalty"),
    [
        pytest.param([0, 0, 1, 1, 1, 1], [2, 3, 4, 5], 0.5, id="scikit-learn/scikit-learn#17444"),  # 0 is none
        pytest.param([1, 2, 3, 1, 1, 1], [0, 1, 1, 2, 2, 2, 3, 4, 5], 0.5, id="scikit-learn/scikit-learn#1190"),
        pytest.param([4, 4, 4, 4, 4, 4], [0, 1, 2, 3, 4, 5], 0.125, id="scikit-learn/scikit-learn#28119"),
    ],
)
def test_weights_count_rows(weights, rows, penalty, intercept):
    x, y = RNG.standard_normal((6, 2)), RNG.standard_normal(6)
    phi = ka.random_features(K.Gaussian(), 2, 8, rng=0)
    weighted = S.ridge(S.moments(x, phi, y=y, weights=np.array(weights, float)), 0.5, intercept=intercept)
    counted = S.ridge(S.moments(x[rows], phi, y=y[rows]), penalty, intercept=intercept)
    assert_allclose(weighted.predict(x), counted.predict(x), rtol=1e-9)


def test_rows_that_are_there_twice():
    """scikit-learn/scikit-learn#3942: a singular kernel matrix needed another solver."""
    x = np.repeat(RNG.standard_normal((15, 2)), 2, axis=0)
    y = RNG.standard_normal(30)
    fit = S.ridge(S.moments(x, exact_map(x), y=y), 0.1, intercept=False)
    k = dense.gaussian(x, x)
    assert_allclose(fit.predict(x), k @ np.linalg.solve(k + 0.1 * np.eye(30), y), atol=1e-7)


def test_repeats_do_not_tell_the_noise_between_groups():
    """hyperopt/hyperopt-sklearn#157: rows of a group share more than their inputs tell, and fits without folds of
    groups went through them; tidymodels/rsample#129.
    """
    estimators = pytest.importorskip("kernattn.sklearn")
    rng = np.random.default_rng(2)
    groups, shared = rng.standard_normal((100, 3)), rng.standard_normal(100)
    x, y = np.repeat(groups, 5, axis=0), np.repeat(shared, 5) + 0.05 * rng.standard_normal(500)
    model = estimators.FeatureRidge(num_features=200, random_state=0).fit(x, y)
    f, fold = model.feature_map_(groups), np.arange(100) % 5
    errors = []
    for held in range(5):
        here = f[fold != held]
        centred, centre = here - here.mean(axis=0), shared[fold != held].mean()
        inner = 5 * centred.T @ centred + model.solution_.penalty[0] * np.eye(f.shape[1])
        weights = 5 * np.linalg.solve(inner, centred.T @ (shared[fold != held] - centre))
        errors.append((f[fold == held] - here.mean(axis=0)) @ weights + centre - shared[fold == held])
    assert np.mean(np.square(errors)) < 3 * np.var(shared)


def test_one_weight_for_all_rows():
    """NVIDIA/cuml#8040: a number as sample_weight ended in an error about its dimensions."""
    estimators = pytest.importorskip("kernattn.sklearn")
    x, y = RNG.standard_normal((20, 2)), RNG.standard_normal(20)
    model = estimators.FeatureRidge(num_features=8, lengthscale=1.0, ridge=1.0, random_state=0)
    wanted = model.fit(x, y, sample_weight=np.full(20, 2.0)).predict(x)
    assert_allclose(model.fit(x, y, sample_weight=2.0).predict(x), wanted, rtol=1e-12)
    for wrong in (-1.0, "two", np.nan):
        with pytest.raises(ValueError, match="sample_weight"):
            model.fit(x, y, sample_weight=wrong)


def test_a_column_that_does_not_vary_is_named():
    """scikit-optimize/scikit-optimize#947: a constant target made every scale infinite; and of several, which one."""
    estimators = pytest.importorskip("kernattn.sklearn")
    x = RNG.uniform(0, 1, (50, 2))
    y = np.column_stack([x[:, 0], np.full(50, 7.0)])
    with pytest.raises(ValueError, match=r"the same in all of n_samples = 50 in column 1: give both"):
        estimators.FeatureGP(num_features=8, lengthscale=1.0, random_state=0).fit(x, y)
    with pytest.warns(UserWarning, match="where targets have no noise"):
        estimators.FeatureRidge(lengthscale=1.0, random_state=0).fit(x, y)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0, 90])
def test_shares_say_between_what_they_lie(share):
    """scikit-learn-contrib/MAPIE#452: a coverage that the rows cannot give was taken. Each share names its bounds."""
    x = np.random.default_rng(0).standard_normal((6, 1))
    phi, y = exact_map(x), x[:, 0]
    made = ka.solvers.moments(x, phi, y=y)
    with pytest.raises(ka.errors.ParameterError, match=r"between 0[.]5 and 1"):
        ka.solvers.jackknife(ka.solvers.ridge(made, 0.1), x, x=x, y=y, coverage=share)
    with pytest.raises(ka.errors.ParameterError, match="between 0 and 1"):
        ka.solvers.calibrate(ka.solvers.gp(made, noise=0.1, amplitude=1.0), x=x, y=y, coverage=share)
    with pytest.raises(ka.errors.ParameterError, match="between 0 and 1"):
        ka.solvers.linear_model(x, phi, y=y, loss="quantile", quantile=share)
