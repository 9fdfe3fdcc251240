"""Ridge regression against the normal equations and densities as written."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from solvers.test_moments import PHI, W, X, Y
from xp import to_numpy

PHI_1 = ka.random_features(ka.kernels.Gaussian(0.7), dim=1, num_features=64, rng=0)
RIDGES = np.array([1e-3, 0.3, 20.0])
PHIX = PHI(X, backend="reference")
W_POSITIVE = W + 0.5


def by_lstsq(phi, y, ridge, intercept, w=None):
    """Weights and intercept by least squares on rows that stand for the penalty."""
    root = np.ones(len(phi)) if w is None else np.sqrt(w)
    m = phi.shape[1]
    rows = np.block([[phi * root[:, None], root[:, None] * intercept], [ridge**0.5 * np.eye(m), np.zeros((m, 1))]])
    found = np.linalg.lstsq(rows, np.concatenate([y * root[:, None], np.zeros((m, y.shape[1]))]))[0]
    return found[:m], found[m] * intercept


def hat(phi, ridge, intercept):
    z = np.column_stack([phi, np.ones(len(phi))]) if intercept else phi
    penalty = ridge * np.eye(z.shape[1])
    if intercept:
        penalty[-1, -1] = 0
    return z @ np.linalg.solve(z.T @ z + penalty, z.T)


@pytest.mark.parametrize("weights", [None, W_POSITIVE], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", RIDGES)
def test_the_normal_equations(ridge, intercept, weights):
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y, weights=weights), ridge, intercept=intercept)
    w, b = by_lstsq(PHIX, Y, ridge, intercept, weights)
    np.testing.assert_allclose(fit.weights, w, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(fit.intercept, b, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(fit.predict(X), PHIX @ w + b, rtol=1e-8, atol=1e-9)
    other = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y[:, 1], weights=weights), ridge, intercept=intercept)
    np.testing.assert_allclose(other.weights, w[:, 1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(other.predict(X), fit.predict(X)[:, 1], rtol=1e-9, atol=1e-9)


def density(phi, y, ridge, intercept):
    """Of contrasts, where there is an intercept: n - 1 orthonormal ones."""
    n = len(phi)
    basis = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1] if intercept else np.eye(n)
    covariance = basis.T @ (np.eye(n) + phi @ phi.T / ridge) @ basis
    z = basis.T @ y
    noise = z @ np.linalg.solve(covariance, z) / len(z)
    return multivariate_normal(np.zeros(len(z)), noise * covariance).logpdf(z)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_path(intercept):
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y), 0.3, intercept=intercept)
    path = fit.path(RIDGES)
    for i, value in enumerate(RIDGES):
        h = hat(PHIX, value, intercept)
        left = Y - h @ Y
        np.testing.assert_allclose(path.effective_dimension[i], np.trace(h) - intercept, rtol=1e-9)
        np.testing.assert_allclose(path.mse[i], np.mean(left**2, axis=0), rtol=1e-9)
        np.testing.assert_allclose(path.gcv[i], np.mean(left**2, axis=0) / (1 - np.trace(h) / 90) ** 2, rtol=1e-9)
        wanted = [density(PHIX, y, value, intercept) for y in Y.T]
        np.testing.assert_allclose(path.log_evidence[i], wanted, rtol=1e-9)
        leverage = fit.at(value).leverage(X)
        np.testing.assert_allclose(leverage, np.diagonal(h)[:, None] * [1, 1], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.gcv, path.gcv[1])
    np.testing.assert_allclose(fit.log_evidence, path.log_evidence[1])
    np.testing.assert_allclose(fit.effective_dimension, path.effective_dimension[[1, 1]])
    assert fit.path().penalty.shape == (200,)
    total = Y - intercept * np.mean(Y, axis=0)
    np.testing.assert_allclose(fit.path(np.array([1e300])).mse[0], np.mean(total**2, axis=0))
    one = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y[:, 0]), 0.3, intercept=intercept)
    np.testing.assert_allclose(one.path(RIDGES).gcv, path.gcv[:, 0])
    assert one.gcv.shape == one.intercept.shape == one.effective_dimension.shape == ()
    assert one.leverage(X).shape == (90,)


def test_leverages_of_weighted_rows():
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y[:, 0], weights=W_POSITIVE), 0.3)
    np.testing.assert_allclose(W_POSITIVE @ fit.leverage(X), fit.effective_dimension + 1)


def smooth(n, rng, dtype="f8"):
    x = rng.uniform(-2, 2, (n, 1)).astype(dtype)
    return x, np.sin(3 * x[:, 0]) + 0.3 * rng.standard_normal(n).astype(dtype)


@pytest.mark.parametrize("products", ["float64", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_choice_of_a_ridge(dtype, products):
    """Within 1 % of the least GCV that a fine grid finds by dense algebra in float64."""
    x, y = smooth(300, np.random.default_rng(1), dtype)
    phi = ka.random_features(ka.kernels.Gaussian(0.5), dim=1, num_features=60, rng=0)
    fit = ka.solvers.ridge(ka.solvers.moments(x, phi, y=y, products=products), objective="gcv")
    rows, targets = phi(x.astype("f8")), y.astype("f8")

    def gcv(ridge):
        h = hat(rows, ridge, True)
        return np.mean((targets - h @ targets) ** 2) / (1 - np.trace(h) / len(rows)) ** 2

    assert fit.gcv == pytest.approx(gcv(float(fit.penalty[0])), rel=0.01)
    assert gcv(float(fit.penalty[0])) < 1.001 * min(map(gcv, np.geomspace(1e-3, 1e3, 100)))
    assert fit.penalty[0] > fit.floor


def test_the_least_ridge_that_is_chosen():
    x = np.random.default_rng(4).uniform(-2, 2, (60, 1))
    m = ka.solvers.moments(x, PHI_1, y=np.sin(x[:, 0]))
    assert ka.solvers.ridge(m, objective="gcv").penalty[0] < 1e-6
    folds = [ka.solvers.moments(x[i::3], PHI_1, y=np.sin(x[i::3, 0])) for i in range(3)]
    for given, name in ((m, "evidence prefers"), (folds, "folds prefer")):
        with pytest.warns(UserWarning, match=rf"{name} is the least of its range, 0\.001: .* no noise"):
            assert ka.solvers.ridge(given, lowest=1e-3).penalty[0] == 1e-3
    noisy = ka.solvers.moments(x, PHI_1, y=np.sin(x[:, 0]) + 0.1 * np.random.default_rng(5).standard_normal(60))
    best = float(ka.solvers.ridge(noisy).penalty[0])
    with pytest.warns(UserWarning, match=f"least of its range, 1e.09: no less is allowed, and the best is {best:.3g}$"):
        assert ka.solvers.ridge(noisy, lowest=1e9).penalty[0] == 1e9
    assert ka.solvers.ridge(m, 1e-4, lowest=1e-3).penalty[0] == 1e-4
    process = ka.solvers.gp(m, lowest=1e-3)
    assert (process.noise / process.amplitude)[0] ** 2 == pytest.approx(1e-3)
    for solve in (ka.solvers.ridge, ka.solvers.gp):
        for given in (-1.0, np.nan, "low"):
            with pytest.raises(ParameterError, match="lowest must be"):
                solve(m, lowest=given)


def test_the_choice_of_a_ridge_by_the_evidence():
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y))
    path = fit.path()
    np.testing.assert_array_less(path.log_evidence.max(axis=0), fit.log_evidence + 1e-9)
    np.testing.assert_allclose(fit.penalty, path.penalty[np.argmax(path.log_evidence, axis=0)], rtol=0.2)
    near = [density(PHIX, Y[:, 0], fit.penalty[0] * by, True) for by in (0.98, 1, 1.02)]
    assert max(near) == near[1]
    with pytest.raises(ParameterError, match="objective must be one of"):
        ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y), objective="aic")


def test_rows_far_from_all_others():
    """Cross-validation takes a tiny ridge, which fits them and fails beside them; the evidence does not."""
    rng = np.random.default_rng(5)
    x, new = rng.standard_normal((2, 1000, 3))
    x[:10], new[:10] = 8 * x[:10], 8 * new[:10]
    y, truth = (np.sum(np.tanh(rows), axis=1) for rows in (x, new))
    phi = ka.random_features(ka.kernels.Gaussian(2.0), dim=3, num_features=256, rng=0)
    m = ka.solvers.moments(x, phi, y=y + 0.1 * rng.standard_normal(1000))
    by_gcv, by_evidence = (ka.solvers.ridge(m, objective=name) for name in ("gcv", "evidence"))
    assert np.mean((by_evidence.predict(new) - truth) ** 2) < 0.2
    assert np.mean((by_gcv.predict(new) - truth) ** 2) > 1


def test_each_target_has_its_own_ridge():
    rng = np.random.default_rng(2)
    x, y = smooth(300, rng)
    both = np.column_stack([y, rng.standard_normal(300)])
    phi = ka.random_features(ka.kernels.Gaussian(0.5), dim=1, num_features=60, rng=0)
    fit = ka.solvers.ridge(ka.solvers.moments(x, phi, y=both))
    assert fit.penalty[1] > 10 * fit.penalty[0]  # noise is shrunk
    for i in range(2):
        one = ka.solvers.ridge(ka.solvers.moments(x, phi, y=both[:, i]))
        np.testing.assert_allclose(one.penalty[0], fit.penalty[i], rtol=1e-6)
        np.testing.assert_allclose(fit.at(fit.penalty).predict(x)[:, i], one.predict(x), rtol=1e-6, atol=1e-8)


def test_more_features_than_rows():
    x, y = smooth(40, np.random.default_rng(3))
    phi = ka.random_features(ka.kernels.Gaussian(0.3), dim=1, num_features=200, rng=0)
    fit = ka.solvers.ridge(ka.solvers.moments(x, phi, y=y))
    w, b = by_lstsq(phi(x), y[:, None], float(fit.penalty[0]), True)
    assert np.abs(fit.weights).max() < 10
    np.testing.assert_allclose(fit.predict(x), (phi(x) @ w + b)[:, 0], atol=1e-6)
    assert np.isfinite(fit.path().gcv).all()
    assert np.isfinite(fit.path().log_evidence).all()


def test_predictions_are_of_the_kind_of_the_rows(xp):
    m = ka.solvers.moments(X, PHI, y=Y)
    with xp.wide():
        for dtype in ("float32", "float64"):
            x = xp.asarray(X.reshape(2, 45, 3), dtype)
            fit = ka.solvers.ridge(m, 0.3)
            for got, wanted in ((fit.predict(x), fit.predict(X)), (fit.leverage(x), fit.leverage(X))):
                assert xp.holds(got)
                assert got.dtype == x.dtype
                assert tuple(got.shape) == (2, 45, 2)
                tolerance = 1e-4 if dtype == "float32" else 1e-9
                np.testing.assert_allclose(to_numpy(got).reshape(90, 2), wanted, rtol=tolerance, atol=tolerance)


def test_predictions_in_blocks(monkeypatch):
    fit = ka.solvers.ridge(ka.solvers.moments(X, PHI, y=Y), 0.3)
    whole = fit.predict(X.reshape(2, 45, 3))
    monkeypatch.setattr("kernattn.solvers._spectrum.BLOCK", 200)
    np.testing.assert_allclose(fit.predict(X.reshape(2, 45, 3)), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", [None, W_POSITIVE], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [False, True])
def test_cross_validation(intercept, weights):
    kept = [np.arange(90) % 3 == i for i in range(3)]

    def moments(rows):
        return ka.solvers.moments(X[rows], PHI, y=Y[rows], weights=None if weights is None else weights[rows])

    found = ka.solvers.cross_validate([moments(rows) for rows in kept], RIDGES, intercept=intercept)
    w = np.ones(90) if weights is None else weights
    wanted = np.zeros((3, 3, 2))
    for i, rows in enumerate(kept):
        for j, value in enumerate(RIDGES):
            coefficients, b = by_lstsq(PHIX[~rows], Y[~rows], value, intercept, w[~rows])
            left = (Y[rows] - PHIX[rows] @ coefficients - b) ** 2
            wanted[i, j] = np.average(left, axis=0, weights=w[rows])
    np.testing.assert_allclose(found.fold_mse, wanted, rtol=1e-7)
    np.testing.assert_allclose(
        found.mse, np.average(wanted, axis=0, weights=[w[rows].sum() for rows in kept]), rtol=1e-7
    )
    np.testing.assert_array_equal(found.best, RIDGES[np.argmin(found.mse, axis=0)])


@pytest.mark.parametrize("objective", ["gcv", "evidence"])
def test_targets_far_from_zero(objective):
    """The choice, its error and cross-validation are those of targets about 0."""
    x, y = smooth(300, np.random.default_rng(6))
    near, far = ([ka.solvers.moments(x[i::3], PHI_1, y=y[i::3] + by) for i in range(3)] for by in (0.0, 1.7e9))
    fit, other = (ka.solvers.ridge(a + b + c, objective=objective) for a, b, c in (near, far))
    np.testing.assert_allclose(other.predict(x) - 1.7e9, fit.predict(x), atol=1e-5)
    np.testing.assert_allclose((other.gcv, other.log_evidence), (fit.gcv, fit.log_evidence), rtol=1e-5)
    found, wanted = (ka.solvers.cross_validate(folds, RIDGES).fold_mse for folds in (far, near))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_choice_of_a_ridge_by_folds(intercept):
    """The larger penalty of two: of the best score, of rows left out and the density as written, or of those rows."""
    x, y = smooth(90, np.random.default_rng(7))
    y = np.column_stack([y, x[:, 0] + np.random.default_rng(8).standard_normal(90)])
    folds = [ka.solvers.moments(x[i::3], PHI_1, y=y[i::3]) for i in range(3)]
    fit, rows = ka.solvers.ridge(folds, intercept=intercept), PHI_1(x)

    def left_out(penalty):
        found = []
        for i in range(3):
            kept = np.arange(90) % 3 != i
            w, b = by_lstsq(rows[kept], y[kept], penalty, intercept)
            found.append(np.mean((y[~kept] - rows[~kept] @ w - b) ** 2, axis=0))
        return np.mean(found, axis=0)

    def score(penalty, i):
        return (90 - intercept) / 2 * np.log(left_out(penalty)[i]) - density(rows, y[:, i], penalty, intercept)

    for i, chosen in enumerate(fit.penalty):
        tried = np.geomspace(1e-3, 1e3, 30)
        costs = [lambda at, i=i: score(at, i), lambda at, i=i: 45 * np.log(left_out(at)[i])]
        best = [min(tried, key=cost) for cost in costs]
        assert min(cost(chosen) - cost(at) for cost, at in zip(costs, best, strict=True)) < 0.1
        assert chosen > max(best) / 1.7  # the grid's step
        w, b = by_lstsq(rows, y, chosen, intercept)
        np.testing.assert_allclose(fit.predict(x)[:, i], (rows @ w + b)[:, i], atol=1e-6)
    given = ka.solvers.ridge(folds, 0.3, intercept=intercept)
    np.testing.assert_allclose(
        given.predict(x), ka.solvers.ridge(sum(folds[1:], folds[0]), 0.3, intercept=intercept).predict(x)
    )
    with pytest.raises(ParameterError, match="moments must be a sequence"):
        ka.solvers.ridge(folds[0], objective="folds")


def test_folds_of_unequal_weight():
    """The moments of the others are sums: a difference would lose them beside the heavy fold."""
    heavy, *light = (
        ka.solvers.moments(X[i::3], PHI, y=Y[i::3], weights=np.full(30, w)) for i, w in enumerate([1e30, 1.0, 1.0])
    )
    found = ka.solvers.cross_validate([heavy, *light], [2e16])
    fit = ka.solvers.ridge(light[0] + light[1], 2e16)
    np.testing.assert_allclose(found.fold_mse[0, 0], np.mean((Y[::3] - fit.predict(X[::3])) ** 2, axis=0), rtol=1e-6)


def test_one_target_cross_validated():
    folds = [ka.solvers.moments(X[i::3], PHI, y=Y[i::3, 0]) for i in range(3)]
    found = ka.solvers.cross_validate(folds, RIDGES)
    assert (found.mse.shape, found.fold_mse.shape, np.shape(found.best)) == ((3,), (3, 3), ())
    many = [ka.solvers.moments(X[i::3], PHI, y=np.repeat(Y[i::3, :1], 300, axis=1)) for i in range(3)]
    alike = np.repeat(found.fold_mse[..., None], 300, axis=-1)  # more columns than are taken at a time
    np.testing.assert_allclose(ka.solvers.cross_validate(many, RIDGES).fold_mse, alike, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-250, 1e250])
def test_weights_of_every_size(unit):
    m, other = (ka.solvers.moments(X, PHI, y=Y, weights=W_POSITIVE * by) for by in (1.0, unit))
    fit, same = ka.solvers.ridge(m, 0.3), ka.solvers.ridge(other, 0.3 * unit)
    np.testing.assert_allclose(same.predict(X), fit.predict(X), rtol=1e-9)
    np.testing.assert_allclose(same.effective_dimension, fit.effective_dimension, rtol=1e-9)
    np.testing.assert_allclose(same.gcv / unit, fit.gcv, rtol=1e-9)
    np.testing.assert_allclose(ka.solvers.ridge(other).penalty / unit, ka.solvers.ridge(m).penalty, rtol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("num_features", [2, 8, 64])
def test_equal_rows_are_told(backend, num_features):
    """Whatever rounding makes of the sums."""
    phi = ka.random_features(ka.kernels.Gaussian(), dim=1, num_features=num_features, rng=0)
    for value in np.random.default_rng(0).standard_normal(5):
        m = ka.solvers.moments(np.full((8192, 1), 10 * value), phi, y=np.arange(8192.0), backend=backend)
        with pytest.raises(ParameterError, match="same in all rows"):
            ka.solvers.ridge(m)


def test_refusals():
    m, none = ka.solvers.moments(X, PHI, y=Y), ka.solvers.moments(X, PHI)
    floor = ka.solvers.ridge(m).floor
    assert ka.solvers.ridge(m, floor).penalty[0] == floor
    single = ka.solvers.ridge(ka.solvers.moments(X.astype("f4"), PHI, y=Y, products="float32"))
    assert single.floor == pytest.approx(floor * 2**29, rel=1e-3)
    for given in (floor / 2, 0.0, -1.0, np.nan, np.inf, [1.0, 0.0]):
        with pytest.raises(ParameterError, match="penalty must be finite and"):
            ka.solvers.ridge(m, given)
    for given in ("gcv", "1", True, 1j, 10**400, [[1.0], 2.0]):
        with pytest.raises(ParameterError, match="penalty must be numbers"):
            ka.solvers.ridge(m).at(given)
    with pytest.raises(ShapeError, match="as many columns as the rows that were fitted"):
        ka.solvers.ridge(ka.solvers.moments(X, ka.features.elu1(), y=Y)).predict(X[:, :2])
    with pytest.raises(ShapeError, match="penalty must"):
        ka.solvers.ridge(m, np.ones((2, 2)))
    with pytest.raises(ShapeError, match="penalty must be one number or one for each of 2 targets"):
        ka.solvers.ridge(m, np.ones(3))
    with pytest.raises(EmptyInputError, match="without y"):
        ka.solvers.ridge(none)
    with pytest.raises(EmptyInputError, match="2 rows at least; got 0"):
        ka.solvers.ridge(ka.solvers.initial_moments(PHI, targets=2))
    with pytest.raises(DTypeError, match="moments must be a Moments"):
        ka.solvers.ridge(X)
    with pytest.raises(ParameterError, match="intercept must be True or False"):
        ka.solvers.ridge(m, intercept=1.0)
    with pytest.raises(ParameterError, match="same in all rows"):
        ka.solvers.ridge(ka.solvers.moments(np.zeros((4, 3)), PHI, y=np.arange(4.0)), intercept=True)
    for folds in ([m], m, 3):
        with pytest.raises(ParameterError, match="two moments or more"):
            ka.solvers.cross_validate(folds, RIDGES)
    with pytest.raises(EmptyInputError, match="rows and targets"):
        ka.solvers.cross_validate([m, none], RIDGES)
    with pytest.raises(ParameterError, match="penalty must be finite and"):
        ka.solvers.cross_validate([m, m], [0.0, 1.0])


def test_predictions_beyond_float32_are_infinite():
    m = ka.solvers.moments(X, PHI, y=1e60 * np.column_stack([X[:, 0], 1e-60 * X[:, 1]]))
    for call in (ka.solvers.ridge(m, 1.0).predict, ka.solvers.gp(m, noise=1.0, amplitude=1.0).mean):
        found, wanted = call(X.astype("f4")), call(X)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.isinf(found), np.abs(wanted) > np.finfo("f4").max)
        assert np.isinf(found).any()


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("below", [-800.0, -360.0])
def test_features_whose_squares_vanish_are_refused(below, intercept):
    x = below + np.random.default_rng(0).standard_normal((20, 3))
    m = ka.solvers.moments(x, ka.features.elu1(), y=x[:, 0])  # exp(x)
    with pytest.raises(ParameterError, match="features must not be"):
        ka.solvers.ridge(m, intercept=intercept)


@pytest.mark.parametrize("objective", ["evidence", "gcv", "folds"])
def test_targets_are_fitted_at_any_scale_or_refused(objective):
    """Squares of targets of 1e-148 were lost: the fit was their mean, of every objective, without a word."""
    rng = np.random.default_rng(6)
    x = rng.uniform(-2, 2, (60, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(60)

    def fitted(scale):
        folds = [ka.solvers.moments(x[i::3], PHI_1, y=scale * y[i::3]) for i in range(3)]
        fit = ka.solvers.ridge(folds if objective == "folds" else sum(folds[1:], folds[0]), objective=objective)
        return fit.predict(x) / scale

    wanted = fitted(1.0)
    assert np.mean((wanted - y) ** 2) < 0.05
    for scale in (1e-120, 1e-135, 1e140):
        np.testing.assert_allclose(fitted(scale), wanted, rtol=1e-6)
    for scale in (1e-140, 1e-148, 1e-165, 1e-290):
        with pytest.raises(ParameterError, match="targets must be 0, or larger"):
            fitted(scale)
