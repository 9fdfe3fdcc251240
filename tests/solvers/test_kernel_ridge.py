"""Kernel ridge regression by conjugate gradients against direct solves."""

from functools import partial

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
kernel_ridge = partial(ka.solvers.kernel_ridge, rng=0)
TIGHT = {"tolerance": 1e-11}


@pytest.fixture
def steps(monkeypatch):
    """Solve by steps whatever the number of rows."""
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.pays", lambda n, c: False)


def krr(kernel, x, y, ridge):
    return np.linalg.solve(kernel(x) + ridge * np.eye(len(x)), y)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("method", ["uniform", "rpcholesky", "kmeans", "greedy"])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_landmarks_are_ridge_on_nystrom_features(method, ridge, sampled, monkeypatch):
    if sampled:
        monkeypatch.setattr("kernattn.solvers._kernel_ridge.FEW", 0)
    fit = kernel_ridge(X, Y, KERNEL, num_landmarks=40, penalty=ridge, method=method, **TIGHT)
    phi = ka.features.nystrom(X, KERNEL, landmarks=fit.landmarks)
    wanted = ka.solvers.ridge(ka.solvers.moments(X, phi, y=Y), ridge, intercept=False)
    assert fit.converged
    assert (fit.iterations > 3) == sampled
    np.testing.assert_allclose(fit.predict(NEW), wanted.predict(NEW), atol=1e-6)


@pytest.mark.parametrize("kernel", [KERNEL, ka.kernels.Matern(1.5), 2.0 * ka.kernels.Laplacian(), ka.kernels.Cauchy()])
def test_the_normal_equations_of_falkon(kernel):
    fit = kernel_ridge(X, Y[:, 0], kernel, num_landmarks=30, penalty=0.1, **TIGHT)
    across, inner = kernel(X, fit.landmarks), kernel(fit.landmarks)
    left = across.T @ (across @ fit.weights - Y[:, 0]) + 0.1 * inner @ fit.weights
    np.testing.assert_allclose(left, 0, atol=1e-7)
    np.testing.assert_allclose(fit.predict(NEW), kernel(NEW, fit.points) @ fit.weights, atol=1e-9)


def test_all_rows_as_landmarks_give_exact_regression():
    for exact in (False, True):
        fit = kernel_ridge(X, Y, KERNEL, landmarks=np.arange(len(X)), penalty=0.3, exact=exact, **TIGHT)
        np.testing.assert_allclose(fit.predict(NEW), KERNEL(NEW, X) @ krr(KERNEL, X, Y, 0.3), atol=1e-6)
        assert fit.converged


@pytest.mark.parametrize("method", ["uniform", "rpcholesky"])
@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
@pytest.mark.usefixtures("steps")
def test_exact_is_the_direct_solve(method, ridge):
    """With a ridge of 1e-6 the matrix has a condition of 1e8."""
    fit = kernel_ridge(X, Y, KERNEL, num_landmarks=120, penalty=ridge, method=method, exact=True, **TIGHT)
    assert fit.converged
    assert fit.points.shape == X.shape
    wanted = krr(KERNEL, X, Y, ridge)
    np.testing.assert_allclose(fit.weights, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("ridge", [1e-10, 1e-6, 1.0])
@pytest.mark.parametrize("given", [{}, {"num_landmarks": 7}], ids=["none", "few rows"])
def test_a_factor_needs_one_step(given, ridge):
    """Of no landmarks, and of few rows whatever their number; near the rounding of the matrix another refines it."""
    fit = kernel_ridge(X, Y, KERNEL, penalty=ridge, exact=True, **given)
    assert fit.converged
    assert fit.iterations <= 1 + (ridge < 1e-8)
    np.testing.assert_array_equal(fit.landmarks, X)
    np.testing.assert_array_equal(fit.points, X)
    wanted = krr(KERNEL, X, Y, ridge)
    np.testing.assert_allclose(fit.weights, wanted, atol=1e-14 * len(X) / ridge * np.abs(wanted).max())


@pytest.mark.parametrize("given", [{"landmarks": np.arange(9)}, {"phi": ka.features.nystrom(X, KERNEL, 9, rng=0)}])
def test_landmarks_that_are_given_are_taken(given):
    fit = kernel_ridge(X, Y, KERNEL, penalty=1.0, exact=True, **given)
    assert fit.landmarks.shape == (9, 2)
    assert fit.iterations > 1


def test_rows_that_come_again_have_no_factor_of_a_penalty_below_rounding():
    """Steps say so where their landmarks do, and the penalty is refused where there are none."""
    again = np.tile(X[:5], (4, 1))
    for given, message in (({}, "the kernel's matrix"), ({"num_landmarks": 5}, "sums over rows")):
        with pytest.raises(ParameterError, match=f"penalty must be above the rounding of {message}"):
            kernel_ridge(again, again[:, 0], KERNEL, penalty=1e-25, exact=True, **given)


@pytest.mark.parametrize("columns", [slice(None), 0], ids=["targets", "target"])
def test_rows_whose_matrix_is_not_held_are_the_direct_solve(columns, monkeypatch):
    """Such rows choose landmarks of their own, fewer than they are."""
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.HELD", len(X) ** 2 - 1)
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.OWN", 3)
    for x in (X, X.astype("f4")):
        fit = kernel_ridge(x, Y[:, columns], KERNEL, penalty=1e-2, exact=True, tolerance=1e-9)
        assert fit.converged
        assert fit.iterations > 1
        assert fit.landmarks.shape == (51, 2)
        wanted = krr(KERNEL, x.astype("f8"), Y[:, columns], 1e-2)
        np.testing.assert_allclose(fit.weights, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.usefixtures("steps")
def test_steps_go_on_from_a_fit():
    given = {"penalty": 1e-2, "exact": True, "method": "rpcholesky", "tolerance": 1e-9}
    whole = kernel_ridge(X, Y, KERNEL, num_landmarks=30, **given)
    part = kernel_ridge(X, Y, KERNEL, num_landmarks=30, **given, max_iterations=4)
    on = kernel_ridge(X, Y, KERNEL, landmarks=part.landmarks, **given, start=part)
    assert not part.converged
    assert on.converged
    assert on.iterations < whole.iterations
    np.testing.assert_allclose(on.residuals[0], part.residuals[-1], rtol=1e-6)
    np.testing.assert_allclose(on.predict(NEW), whole.predict(NEW), atol=1e-6)


def test_a_start_brings_its_landmarks(monkeypatch):
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.HELD", 1)
    first = kernel_ridge(X, Y, KERNEL, penalty=1e-2, exact=True, max_iterations=1)
    then = kernel_ridge(X, Y, KERNEL, penalty=1e-2, exact=True, start=first)
    assert then.converged
    np.testing.assert_array_equal(np.sort(then.landmarks, axis=0), np.sort(first.landmarks, axis=0))
    again = kernel_ridge(X, Y, KERNEL, penalty=1e-2, exact=True, start=then)
    assert again.iterations == 0
    np.testing.assert_array_equal(again.weights, then.weights)


def test_starts_that_do_not_fit():
    fit = kernel_ridge(X, Y, KERNEL, penalty=1e-2, exact=True)
    for given in ({"x": X[:9], "y": Y[:9]}, {"x": X, "y": Y[:, 0]}, {"x": X + 1, "y": Y}):
        with pytest.raises(ParameterError, match="start must be a fit to these rows"):
            kernel_ridge(**given, kernel=KERNEL, penalty=1e-2, exact=True, start=fit)
    with pytest.raises(ParameterError, match="start is for exact=True"):
        kernel_ridge(X, Y, KERNEL, penalty=1e-2, num_landmarks=5, start=fit)
    with pytest.raises(DTypeError, match="start must be"):
        kernel_ridge(X, Y, KERNEL, penalty=1e-2, exact=True, start=fit.weights)


@pytest.mark.usefixtures("steps")
def test_landmarks_precondition():
    few, many = (
        kernel_ridge(X, Y, KERNEL, num_landmarks=m, penalty=1e-3, exact=True, method="rpcholesky") for m in (1, 120)
    )
    assert many.iterations < 10 < few.iterations
    assert kernel_ridge(X, Y, KERNEL, num_landmarks=100, penalty=1e-6).iterations < 30


def test_where_sums_of_kernel_values_round():
    """Features make the preconditioner then, and it takes no more steps, with rows far from all landmarks too."""
    far = np.random.default_rng(2).standard_t(2, (2000, 2))
    assert kernel_ridge(far, far[:, 0], ka.kernels.Gaussian(4.0), num_landmarks=100, penalty=1e-2).iterations < 4
    x = np.random.default_rng(1).uniform(-1, 1, (400, 1))
    y = np.sin(3 * x[:, 0])
    for ridge in (1e-2, 1e-5, 1e-8, 1e-10):
        fit = kernel_ridge(x, y, ka.kernels.Gaussian(1.0), num_landmarks=60, penalty=ridge)
        assert fit.converged
        assert fit.iterations < 4
        assert np.sqrt(np.mean((fit.predict(x) - y) ** 2)) < 0.05


def by_qr(kernel, x, y, landmarks, penalty):
    """Return predictions at x by least squares on features, whose squares are never taken."""
    values, vectors = np.linalg.eigh(kernel(landmarks))
    features = kernel(x, landmarks) @ vectors / np.sqrt(np.maximum(values, 1e-14))
    system = np.concatenate([features, penalty**0.5 * np.eye(len(landmarks))])
    return features @ np.linalg.lstsq(system, np.concatenate([y, np.zeros(len(landmarks))]))[0]


@pytest.mark.parametrize("ridge", [1e-12, 1e-9, 1e-4])
def test_no_digits_are_lost_where_landmarks_are_near_each_other(ridge):
    """Their matrix has a condition of 1e17: the functions that they span are found from sums of what others leave."""
    x = np.random.default_rng(1).uniform(-1, 1, (400, 1))
    y = np.sin(3 * x[:, 0])
    kernel = ka.kernels.Gaussian(1.0)
    fit = kernel_ridge(x, y, kernel, num_landmarks=60, penalty=ridge)
    assert fit.converged
    assert fit.iterations == 1
    for dtype in ("f4", "f8"):
        np.testing.assert_allclose(
            fit.predict(x.astype(dtype)),
            by_qr(kernel, x, y, fit.landmarks, ridge),
            atol=3e-6 if dtype == "f8" else 1e-5,
        )


@pytest.mark.parametrize("kernel", [ka.kernels.Gaussian(0.5), ka.kernels.Matern(1.5), ka.kernels.Laplacian()])
@pytest.mark.parametrize("ridge", [1e-6, 1e-1])
def test_the_residual_that_is_told_is_no_smaller_than_that_of_passes_over_rows(kernel, ridge):
    """Passes measure what sums alone claim, down to their own rounding."""
    fit = kernel_ridge(X, Y, kernel, num_landmarks=50, penalty=ridge)
    assert fit.iterations == 1
    phi = ka.features.nystrom(X, kernel, landmarks=fit.landmarks)
    values = phi.eigenvalues
    features = kernel(X, fit.landmarks) @ phi.eigenvectors / np.sqrt(values)
    weights = np.sqrt(values)[:, None] * (phi.eigenvectors.T @ fit.weights)
    left = features.T @ (Y - kernel(X, fit.landmarks) @ fit.weights) - ridge * weights
    assert np.all(np.linalg.norm(left, axis=0) / np.linalg.norm(features.T @ Y, axis=0) < fit.residuals[-1] + 1e-8)


@pytest.mark.parametrize("taken", [0, 8, 40])
def test_steps_go_on_where_sums_round(taken, monkeypatch):
    """Whatever was taken off, and with steps where that was too little for the tolerance."""
    chosen = []

    def choose(landmarks, n, penalty):
        chosen.append(taken)
        inner = landmarks.lower[taken:, taken:]
        return taken, inner @ inner.T

    monkeypatch.setattr("kernattn.solvers._landmark_sums._choose_taken", choose)
    fit = kernel_ridge(X, Y, ka.kernels.Gaussian(2.0), num_landmarks=40, penalty=1e-3, tolerance=1e-9)
    assert chosen == [taken]
    assert fit.converged
    assert (fit.iterations > 1) == (taken < 40)
    for column, wanted in zip(fit.predict(X).T, Y.T, strict=True):
        exact = by_qr(ka.kernels.Gaussian(2.0), X, wanted, fit.landmarks, 1e-3)
        np.testing.assert_allclose(column, exact, atol=1e-5)


def test_a_cutoff_of_a_map_holds():
    few, many = (
        kernel_ridge(X, Y, KERNEL, phi=ka.features.nystrom(X, KERNEL, 60, cutoff=cutoff, rng=0), penalty=1e-3)
        for cutoff in (1e-2, 0.0)
    )
    assert np.count_nonzero(few.weights[:, 0]) < np.count_nonzero(many.weights[:, 0]) == 60


def test_the_preconditioner_of_a_sample_is_of_the_size_of_all_rows(monkeypatch):
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.FEW", 0)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    fit = kernel_ridge(x, np.sin(2 * x[:, 0]) * x[:, 1], KERNEL, num_landmarks=20, penalty=10.0, tolerance=1e-8)
    assert fit.iterations < 12


@pytest.mark.usefixtures("steps")
def test_steps_are_no_more_than_distinct_eigenvalues():
    """Directions are conjugate: steepest descent would need many more."""
    fit = kernel_ridge(
        np.tile(X[:10], (30, 1)), Y[:, 0], KERNEL, num_landmarks=1, penalty=0.01, exact=True, tolerance=1e-10
    )
    assert fit.converged
    assert fit.iterations <= 12


def test_residuals_are_relative():
    one, thousand = (kernel_ridge(X, scale * Y, KERNEL, num_landmarks=30, penalty=0.1) for scale in (1, 1000))
    np.testing.assert_allclose(one.residuals[0], 1)
    np.testing.assert_allclose(thousand.residuals, one.residuals, atol=1e-10)


def test_rows_and_landmarks_twice():
    x, y = np.concatenate([X, X]), np.concatenate([Y, Y])
    twice = kernel_ridge(x, y, KERNEL, landmarks=np.tile(np.arange(25), 2), penalty=0.2, **TIGHT)
    once = kernel_ridge(X, Y, KERNEL, landmarks=np.arange(25), penalty=0.1, **TIGHT)
    np.testing.assert_allclose(twice.predict(NEW), once.predict(NEW), atol=1e-6)
    exact = kernel_ridge(x, y, KERNEL, num_landmarks=60, penalty=0.2, exact=True, **TIGHT)
    np.testing.assert_allclose(exact.predict(NEW), KERNEL(NEW, X) @ krr(KERNEL, X, Y, 0.1), atol=1e-6)


def test_columns_of_targets_are_fits_of_their_own():
    both = kernel_ridge(X, np.column_stack([Y, np.zeros(300)]), KERNEL, num_landmarks=30, penalty=0.1, **TIGHT)
    one = kernel_ridge(X, Y[:, 1], KERNEL, num_landmarks=30, penalty=0.1, **TIGHT)
    assert both.residuals.shape == (both.iterations + 1, 3)
    assert one.weights.shape == (30,)
    assert one.predict(NEW).shape == (40,)
    np.testing.assert_allclose(both.predict(NEW)[:, 1], one.predict(NEW), atol=1e-8)
    np.testing.assert_array_equal(both.weights[:, 2], 0)


def test_landmarks_as_points_as_a_map_and_by_a_seed():
    by_seed = kernel_ridge(X, Y, KERNEL, num_landmarks=30, penalty=0.1, rng=3)
    phi = ka.features.nystrom(X, KERNEL, 30, rng=3)
    for given in ({"phi": phi}, {"landmarks": phi.indices}, {"landmarks": phi.landmarks}):
        fit = kernel_ridge(X, Y, KERNEL, **given, penalty=0.1)
        np.testing.assert_array_equal(fit.landmarks, by_seed.landmarks)
        np.testing.assert_allclose(fit.predict(NEW), by_seed.predict(NEW), atol=1e-4)


@pytest.mark.parametrize("unit", [2.0**-700, 2.0**600])
def test_targets_of_every_size(unit):
    fits = [kernel_ridge(X, y, ka.kernels.Gaussian(), num_landmarks=10, penalty=0.1) for y in (X[:, 0], X[:, 0] * unit)]
    np.testing.assert_array_equal(fits[1].weights, fits[0].weights * unit)


@pytest.mark.usefixtures("steps")
def test_too_few_iterations_are_said():
    fit = kernel_ridge(X, Y, ka.kernels.Laplacian(), num_landmarks=5, penalty=1e-3, exact=True, max_iterations=3)
    assert not fit.converged
    assert fit.iterations == 3
    assert "NOT converged after 3 iterations" in repr(fit)


def test_progress(capsys):
    pytest.importorskip("tqdm")
    kernel_ridge(X, Y, KERNEL, num_landmarks=30, penalty=0.1, progress=True)
    assert "iteration" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    with kind.wide():
        fit = kernel_ridge(
            kind.asarray(X.astype("f4")), kind.asarray(Y.astype("f4")), KERNEL, num_landmarks=30, penalty=0.1
        )
        found = fit.predict(kind.asarray(NEW.astype("f4")))
    assert kind.holds(found)
    assert dtype_name(found) == "float32"
    wanted = kernel_ridge(X.astype("f4"), Y.astype("f4"), KERNEL, num_landmarks=30, penalty=0.1).predict(NEW)
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-3)


def test_errors():
    bad = X.copy()
    bad[[4, 17]] = np.nan
    with pytest.raises(ParameterError, match="x must be finite; NaN or infinity in rows 4, 17"):
        kernel_ridge(bad, Y, KERNEL, num_landmarks=10, penalty=0.1)
    with pytest.raises(ParameterError, match="y must be finite; NaN or infinity in row 2"):
        kernel_ridge(X, np.where(np.arange(300) == 2, np.inf, Y[:, 0]), KERNEL, num_landmarks=10, penalty=0.1)
    for ridge in (0.0, -1.0, np.nan):
        with pytest.raises(ParameterError, match="penalty must be"):
            kernel_ridge(X, Y, KERNEL, num_landmarks=10, penalty=ridge)
    for rows in (NEW.astype(int), NEW.astype(complex)):
        with pytest.raises(DTypeError, match="x must have one of the dtypes"):
            kernel_ridge(X, Y, KERNEL, num_landmarks=10, penalty=0.1).predict(rows)
    with pytest.raises(ParameterError, match="num_landmarks must be at most the 300 rows; got 301"):
        kernel_ridge(X, Y, KERNEL, num_landmarks=301, penalty=0.1)
    for given in ({}, {"num_landmarks": 3, "landmarks": X[:3]}):
        with pytest.raises(ParameterError, match="one of num_landmarks, landmarks and phi"):
            kernel_ridge(X, Y, KERNEL, penalty=0.1, **given)
    with pytest.raises(ParameterError, match="method must be"):
        kernel_ridge(X, Y, KERNEL, num_landmarks=10, penalty=0.1, method="best")
    with pytest.raises(DTypeError, match="landmarks must be points"):
        kernel_ridge(X, Y, KERNEL, landmarks="uniform", penalty=0.1)
    with pytest.raises(ParameterError, match="phi must be a map of"):
        kernel_ridge(X, Y, KERNEL, phi=ka.features.nystrom(X, ka.kernels.Gaussian(), 5), penalty=0.1)
    with pytest.raises(ParameterError, match=r"phi must be a map of .* for d = 2"):
        kernel_ridge(X, Y, KERNEL, phi=ka.features.nystrom(X[:, :1], KERNEL, 5), penalty=0.1)
    with pytest.raises(ShapeError, match=r"y must be \(300,\) or \(300, c\)"):
        kernel_ridge(X, Y[:10], KERNEL, num_landmarks=10, penalty=0.1)
    with pytest.raises(EmptyInputError):
        kernel_ridge(X, Y[:, :0], KERNEL, num_landmarks=10, penalty=0.1)
    with pytest.raises(DTypeError, match="kernel"):
        kernel_ridge(X, Y, "gaussian", num_landmarks=10, penalty=0.1)
    with pytest.raises(ParameterError, match="penalty must be above the rounding"):
        kernel_ridge(X, Y, KERNEL, num_landmarks=50, penalty=1e-300)
    huge = np.concatenate([X, np.full((1, 2), 1e51)])
    with pytest.raises(ParameterError, match="penalty must be above the rounding of sums over rows"):
        kernel_ridge(huge, huge[:, 0] * 1e-51, ka.kernels.Polynomial(3), landmarks=X[:9], penalty=0.1)
    none = ka.kernels.from_function(lambda rows: rows.dot() - 10)
    with pytest.raises(ParameterError, match="landmarks must have a positive semidefinite kernel matrix"):
        kernel_ridge(100 + X, Y, none, landmarks=X[:9], penalty=0.1)


def test_rows_whose_kernel_matrix_is_beyond_float64_are_refused():
    x = np.linspace(-1e9, 1e9, 6)[:, None]
    with pytest.raises(ParameterError, match="kernel matrix that float64 holds"):
        ka.solvers.kernel_ridge(x, x[:, 0], ka.kernels.Softmax(), penalty=1.0, exact=True)


@pytest.mark.parametrize("given", [{"num_landmarks": 12}, {"num_landmarks": 12, "exact": True}, {"exact": True}])
@pytest.mark.parametrize("unit", [2.0**240, 2.0**-240])
def test_kernel_values_whose_squares_are_beyond_float64(given, unit, steps):
    """A kernel of all rows times some number is the same fit at a penalty so many times as large."""
    kernel, by = ka.kernels.Polynomial(2, coef0=0.0), unit**4
    wanted = kernel_ridge(X, Y, kernel, penalty=0.1, method="rpcholesky", **given, **TIGHT)
    with np.errstate(all="raise", under="ignore"):
        fit = kernel_ridge(unit * X, Y, kernel, penalty=0.1 * by, method="rpcholesky", **given, **TIGHT)
    assert fit.converged
    assert fit.iterations == wanted.iterations
    np.testing.assert_allclose(fit.predict(unit * NEW), wanted.predict(NEW), rtol=1e-7, atol=1e-9)
    if given.get("exact"):
        go_on = kernel_ridge(unit * X, Y, kernel, penalty=0.1 * by, exact=True, start=fit, **TIGHT)
        assert go_on.iterations <= 1


def test_a_penalty_that_is_too_small_is_told_in_the_units_of_the_kernel():
    with pytest.raises(ParameterError, match=r"penalty must be above the rounding .* got 1e\+250"):
        kernel_ridge(2.0**240 * X, Y, ka.kernels.Polynomial(2), penalty=1e250, num_landmarks=3)
