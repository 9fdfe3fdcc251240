"""Kernel ridge regression by conjugate gradients against direct solves."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from xp import KINDS, dtype_name, to_numpy

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (300, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 0] ** 2]) + 0.1 * RNG.standard_normal((300, 2))
NEW = RNG.uniform(-2, 2, (40, 2))
KERNEL = ka.kernels.Gaussian(0.8)
TIGHT = {"tolerance": 1e-11}


def krr(kernel, x, y, ridge):
    return np.linalg.solve(kernel(x) + ridge * np.eye(len(x)), y)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("method", ["uniform", "rpcholesky", "kmeans", "greedy"])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_landmarks_are_ridge_on_nystrom_features(method, ridge, sampled, monkeypatch):
    if sampled:
        monkeypatch.setattr("kernattn.solvers._cg.FEW", 0)
    fit = ka.solvers.cg(KERNEL, X, Y, 40, ridge, method=method, **TIGHT)
    phi = ka.features.nystrom(KERNEL, X, landmarks=fit.landmarks)
    wanted = ka.solvers.ridge(ka.solvers.moments(phi, X, Y), ridge, intercept=False)
    assert fit.converged
    assert (fit.iterations > 3) == sampled
    np.testing.assert_allclose(fit.predict(NEW), wanted.predict(NEW), atol=1e-6)


@pytest.mark.parametrize("kernel", [KERNEL, ka.kernels.Matern(1.5), 2.0 * ka.kernels.Laplacian(), ka.kernels.Cauchy()])
def test_the_normal_equations_of_falkon(kernel):
    fit = ka.solvers.cg(kernel, X, Y[:, 0], 30, 0.1, **TIGHT)
    across, inner = kernel(X, fit.landmarks), kernel(fit.landmarks)
    left = across.T @ (across @ fit.weights - Y[:, 0]) + 0.1 * inner @ fit.weights
    np.testing.assert_allclose(left, 0, atol=1e-7)
    np.testing.assert_allclose(fit.predict(NEW), kernel(NEW, fit.points) @ fit.weights, atol=1e-9)


def test_all_rows_as_landmarks_give_exact_regression():
    for exact in (False, True):
        fit = ka.solvers.cg(KERNEL, X, Y, np.arange(len(X)), 0.3, exact=exact, **TIGHT)
        np.testing.assert_allclose(fit.predict(NEW), KERNEL(NEW, X) @ krr(KERNEL, X, Y, 0.3), atol=1e-6)
        assert fit.converged


@pytest.mark.parametrize("method", ["uniform", "rpcholesky"])
@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
def test_exact_is_the_direct_solve(method, ridge):
    """With a ridge of 1e-6 the matrix has a condition of 1e8."""
    fit = ka.solvers.cg(KERNEL, X, Y, 120, ridge, method=method, exact=True, **TIGHT)
    assert fit.converged
    assert fit.points.shape == X.shape
    wanted = krr(KERNEL, X, Y, ridge)
    np.testing.assert_allclose(fit.weights, wanted, atol=1e-6 * np.abs(wanted).max())


def test_landmarks_precondition():
    few, many = (ka.solvers.cg(KERNEL, X, Y, m, 1e-3, exact=True, method="rpcholesky") for m in (1, 120))
    assert many.iterations < 10 < few.iterations
    assert ka.solvers.cg(KERNEL, X, Y, 100, 1e-6).iterations < 30


def test_where_sums_of_kernel_values_round():
    """Features make the preconditioner then, and it takes no more steps, with rows far from all landmarks too."""
    far = np.random.default_rng(2).standard_t(2, (2000, 2))
    assert ka.solvers.cg(ka.kernels.Gaussian(4.0), far, far[:, 0], 100, 1e-2).iterations < 4
    x = np.random.default_rng(1).uniform(-1, 1, (400, 1))
    y = np.sin(3 * x[:, 0])
    for ridge in (1e-2, 1e-5, 1e-8, 1e-10):
        fit = ka.solvers.cg(ka.kernels.Gaussian(1.0), x, y, 60, ridge)
        assert fit.converged
        assert fit.iterations < 4
        assert np.sqrt(np.mean((fit.predict(x) - y) ** 2)) < 0.05


def test_the_preconditioner_of_a_sample_is_of_the_size_of_all_rows(monkeypatch):
    monkeypatch.setattr("kernattn.solvers._cg.FEW", 0)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    fit = ka.solvers.cg(KERNEL, x, np.sin(2 * x[:, 0]) * x[:, 1], 20, 10.0, tolerance=1e-8)
    assert fit.iterations < 12


def test_steps_are_no_more_than_distinct_eigenvalues():
    """Directions are conjugate: steepest descent would need many more."""
    fit = ka.solvers.cg(KERNEL, np.tile(X[:10], (30, 1)), Y[:, 0], 1, 0.01, exact=True, tolerance=1e-10)
    assert fit.converged
    assert fit.iterations <= 12


def test_residuals_are_relative():
    one, thousand = (ka.solvers.cg(KERNEL, X, scale * Y, 30, 0.1) for scale in (1, 1000))
    np.testing.assert_allclose(one.residuals[0], 1)
    np.testing.assert_allclose(thousand.residuals, one.residuals, atol=1e-10)


def test_rows_and_landmarks_twice():
    x, y = np.concatenate([X, X]), np.concatenate([Y, Y])
    twice = ka.solvers.cg(KERNEL, x, y, np.tile(np.arange(25), 2), 0.2, **TIGHT)
    once = ka.solvers.cg(KERNEL, X, Y, np.arange(25), 0.1, **TIGHT)
    np.testing.assert_allclose(twice.predict(NEW), once.predict(NEW), atol=1e-6)
    exact = ka.solvers.cg(KERNEL, x, y, 60, 0.2, exact=True, **TIGHT)
    np.testing.assert_allclose(exact.predict(NEW), KERNEL(NEW, X) @ krr(KERNEL, X, Y, 0.1), atol=1e-6)


def test_columns_of_targets_are_fits_of_their_own():
    both = ka.solvers.cg(KERNEL, X, np.column_stack([Y, np.zeros(300)]), 30, 0.1, **TIGHT)
    one = ka.solvers.cg(KERNEL, X, Y[:, 1], 30, 0.1, **TIGHT)
    assert both.residuals.shape == (both.iterations + 1, 3)
    assert one.weights.shape == (30,)
    assert one.predict(NEW).shape == (40,)
    np.testing.assert_allclose(both.predict(NEW)[:, 1], one.predict(NEW), atol=1e-8)
    np.testing.assert_array_equal(both.weights[:, 2], 0)


def test_landmarks_as_points_as_a_map_and_by_a_seed():
    by_seed = ka.solvers.cg(KERNEL, X, Y, 30, 0.1, rng=3)
    phi = ka.features.nystrom(KERNEL, X, 30, rng=3)
    for landmarks in (phi, phi.indices, phi.landmarks):
        fit = ka.solvers.cg(KERNEL, X, Y, landmarks, 0.1)
        np.testing.assert_array_equal(fit.landmarks, by_seed.landmarks)
        np.testing.assert_allclose(fit.predict(NEW), by_seed.predict(NEW), atol=1e-4)


@pytest.mark.parametrize("unit", [2.0**-700, 2.0**600])
def test_targets_of_every_size(unit):
    fits = [ka.solvers.cg(ka.kernels.Gaussian(), X, y, 10, 0.1) for y in (X[:, 0], X[:, 0] * unit)]
    np.testing.assert_array_equal(fits[1].weights, fits[0].weights * unit)


def test_too_few_iterations_are_said():
    fit = ka.solvers.cg(ka.kernels.Laplacian(), X, Y, 5, 1e-3, exact=True, max_iterations=3)
    assert not fit.converged
    assert fit.iterations == 3
    assert "NOT converged after 3 iterations" in repr(fit)


def test_progress(capsys):
    pytest.importorskip("tqdm")
    ka.solvers.cg(KERNEL, X, Y, 30, 0.1, progress=True)
    assert "iteration" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    with kind.wide():
        fit = ka.solvers.cg(KERNEL, kind.asarray(X.astype("f4")), kind.asarray(Y.astype("f4")), 30, 0.1)
        found = fit.predict(kind.asarray(NEW.astype("f4")))
    assert kind.holds(found)
    assert dtype_name(found) == "float32"
    wanted = ka.solvers.cg(KERNEL, X.astype("f4"), Y.astype("f4"), 30, 0.1).predict(NEW)
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-3)


def test_errors():
    bad = X.copy()
    bad[[4, 17]] = np.nan
    with pytest.raises(ParameterError, match="x must be finite; NaN or infinity in rows 4, 17"):
        ka.solvers.cg(KERNEL, bad, Y, 10, 0.1)
    with pytest.raises(ParameterError, match="y must be finite; NaN or infinity in row 2"):
        ka.solvers.cg(KERNEL, X, np.where(np.arange(300) == 2, np.inf, Y[:, 0]), 10, 0.1)
    for ridge in (0.0, -1.0, np.nan):
        with pytest.raises(ParameterError, match="ridge must be"):
            ka.solvers.cg(KERNEL, X, Y, 10, ridge)
    for rows in (NEW.astype(int), NEW.astype(complex)):
        with pytest.raises(DTypeError, match="x must have one of the dtypes"):
            ka.solvers.cg(KERNEL, X, Y, 10, 0.1).predict(rows)
    with pytest.raises(ParameterError, match="landmarks must be at most the 300 rows; got 301"):
        ka.solvers.cg(KERNEL, X, Y, 301, 0.1)
    with pytest.raises(ParameterError, match="method must be"):
        ka.solvers.cg(KERNEL, X, Y, 10, 0.1, method="best")
    with pytest.raises(DTypeError, match="named by method="):
        ka.solvers.cg(KERNEL, X, Y, "uniform", 0.1)
    with pytest.raises(ParameterError, match="landmarks must be a map of"):
        ka.solvers.cg(KERNEL, X, Y, ka.features.nystrom(ka.kernels.Gaussian(), X, 5), 0.1)
    with pytest.raises(ParameterError, match=r"landmarks must be a map of .* for d = 2"):
        ka.solvers.cg(KERNEL, X, Y, ka.features.nystrom(KERNEL, X[:, :1], 5), 0.1)
    with pytest.raises(ShapeError, match=r"y must be \(300,\) or \(300, c\)"):
        ka.solvers.cg(KERNEL, X, Y[:10], 10, 0.1)
    with pytest.raises(EmptyInputError):
        ka.solvers.cg(KERNEL, X, Y[:, :0], 10, 0.1)
    with pytest.raises(DTypeError, match="kernel"):
        ka.solvers.cg("gaussian", X, Y, 10, 0.1)
    with pytest.raises(ParameterError, match="ridge must be above the rounding"):
        ka.solvers.cg(KERNEL, X, Y, 50, 1e-300)
