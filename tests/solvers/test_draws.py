"""Draws of Gaussian processes: covariances of normal numbers that are known, against dense inverses in float64."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.solvers import _exact, _factor
from kernels.test_pullbacks import slope
from xp import to_numpy

RNG = np.random.default_rng(5)
X, NEW = RNG.standard_normal((40, 2)), np.concatenate([RNG.standard_normal((5, 2)), [[6.0, -6.0]]])
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] + 3 * X[:, 0]], axis=1)
KERNEL = ka.kernels.Matern(2.5, 1.4)
NYSTROM = ka.features.nystrom(X, KERNEL, 12, rng=0)
RANDOM = ka.random_features(KERNEL, 2, 16, rng=0)
PRIOR = ka.random_features(KERNEL, 2, 32, rng=1)
NOISE, AMPLITUDE = np.array([0.3, 0.1]), np.array([1.5, 2.0])
COUNT = 10_000


def process(phi, column=None, y=Y):
    y = y if column is None else y[:, column]
    scales = (NOISE, AMPLITUDE) if column is None else (NOISE[column], AMPLITUDE[column])
    return ka.solvers.gp(ka.solvers.moments(X, phi, y=y), noise=scales[0], amplitude=scales[1])


def dense(phi, x, y, i):
    """The posterior covariance by n x n inverses, of target i."""
    k = KERNEL if phi is NYSTROM else lambda a, b: phi(a) @ phi(b).T
    rows, a, b = phi(X), phi(x), phi(y)
    inverse = np.linalg.inv(rows @ rows.T + (NOISE[i] / AMPLITUDE[i]) ** 2 * np.eye(len(X)))
    return AMPLITUDE[i] ** 2 * (k(x, y) - a @ rows.T @ inverse @ rows @ b.T)


def assert_normal(draws, mean, covariance):
    """|z| < 5 of means and covariances over the last axis."""
    wide = np.sqrt(np.diagonal(covariance))
    assert np.max(np.abs(draws.mean(axis=-1) - mean) / wide) < 5 / COUNT**0.5
    error = np.sqrt(np.outer(wide, wide) ** 2 + covariance**2)  # of an entry of a Wishart matrix
    assert np.max(np.abs(np.cov(draws) - covariance) / error) < 5 / COUNT**0.5


@pytest.mark.parametrize("phi", [NYSTROM, RANDOM], ids=["nystrom", "random"])
def test_covariance(phi):
    both, one = process(phi), process(phi, 1)
    other = X[:7].copy()
    for i in range(2):
        np.testing.assert_allclose(both.covariance(NEW, other)[..., i], dense(phi, NEW, other, i), atol=1e-9)
        np.testing.assert_allclose(both.covariance(NEW)[..., i], dense(phi, NEW, NEW, i), atol=1e-9)
    np.testing.assert_allclose(one.covariance(NEW), both.covariance(NEW)[..., 1], rtol=1e-9, atol=1e-12)
    own = np.diagonal(both.covariance(NEW), axis1=0, axis2=1).T
    np.testing.assert_allclose(own, both.variance(NEW), rtol=1e-9, atol=1e-12)
    stacked = both.covariance(np.stack([NEW, X[:6]]))
    np.testing.assert_allclose(stacked[0], both.covariance(NEW), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("phi", [NYSTROM, RANDOM], ids=["nystrom", "random"])
def test_samples(phi):
    """Their law is that of the mean and the covariance; one target has the shape of one."""
    both = process(phi)
    drawn = both.sample(NEW, COUNT, rng=0)
    assert drawn.shape == (6, 2, COUNT)
    for i in range(2):
        assert_normal(drawn[:, i], both.mean(NEW)[:, i], both.covariance(NEW)[..., i])
    assert np.max(np.abs(np.corrcoef(drawn[0, 0], drawn[0, 1])[0, 1])) < 5 / COUNT**0.5
    one = process(phi, 0)
    np.testing.assert_array_equal(one.sample(NEW[None], 3, rng=1).shape, (1, 6, 3))
    np.testing.assert_array_equal(one.sample(NEW, 3, rng=1), one.sample(NEW, 3, rng=1))


def test_draws_on_landmarks():
    """Their features' posterior, and what features of the prior lack beside those of the landmarks."""
    both, landmarks = process(NYSTROM), NYSTROM.landmarks
    drawn = both.draw(COUNT, prior=PRIOR, rng=0)(NEW)
    rows, new, matrix = NYSTROM(X), NYSTROM(NEW), KERNEL(landmarks)
    left = PRIOR(NEW) - KERNEL(NEW, landmarks) @ np.linalg.solve(matrix, PRIOR(landmarks))
    for i in range(2):
        of_weights = np.linalg.inv(rows.T @ rows + (NOISE[i] / AMPLITUDE[i]) ** 2 * np.eye(12))
        wanted = NOISE[i] ** 2 * new @ of_weights @ new.T + AMPLITUDE[i] ** 2 * left @ left.T
        assert_normal(drawn[:, i], both.mean(NEW)[:, i], wanted)


def test_draws_of_features():
    both = process(RANDOM)
    drawn = both.draw(COUNT, rng=0)(NEW)
    for i in range(2):
        assert_normal(drawn[:, i], both.mean(NEW)[:, i], both.covariance(NEW)[..., i])


@pytest.mark.parametrize("phi", [NYSTROM, RANDOM], ids=["nystrom", "random"])
def test_draws_at_the_data(phi):
    """Of the exact process, by whichever map: the prior's features less what data tell of them, and noise."""
    drawn = process(phi).draw(COUNT, prior=PRIOR, data=(X, Y), rng=0)(NEW)
    for i in range(2):
        ratio = (NOISE[i] / AMPLITUDE[i]) ** 2
        solved = np.linalg.solve(KERNEL(X) + ratio * np.eye(len(X)), KERNEL(X, NEW)).T
        left = PRIOR(NEW) - solved @ PRIOR(X)
        wanted = AMPLITUDE[i] ** 2 * left @ left.T + NOISE[i] ** 2 * solved @ solved.T
        assert_normal(drawn[:, i], solved @ Y[:, i], wanted)


@pytest.mark.parametrize("penalty", [1e-2, 1e-20])
@pytest.mark.parametrize("held", [0, 1 << 27], ids=["steps", "factor"])
def test_systems_of_all_rows(held, penalty, monkeypatch):
    """A factor and conjugate gradients solve them; a penalty below rounding has no factor, and steps say that."""
    monkeypatch.setattr(_factor, "HELD", held)
    rows = np.concatenate([X, X[:3]])  # rows that come again
    y = KERNEL(rows) @ RNG.standard_normal((43, 3))
    if penalty > 1e-10:
        weights = _exact.solve_on_rows(rows, y, KERNEL, penalty, RNG)
        np.testing.assert_allclose(KERNEL(rows) @ weights + penalty * weights, y, atol=1e-7 * np.max(np.abs(y)))
    else:
        with pytest.raises(ParameterError, match="penalty must be above the rounding"):
            _exact.solve_on_rows(rows, y, KERNEL, penalty, RNG)


def test_draws_say_that_they_are_inexact(monkeypatch):
    monkeypatch.setattr(_factor, "HELD", 0)
    monkeypatch.setattr(_exact, "MOST", 2)
    monkeypatch.setattr(_exact, "STEPS", 1)
    with pytest.warns(UserWarning, match="functions at the data are inexact"):
        process(NYSTROM, 0).draw(2, data=(X, Y[:, 0]), rng=0)


@pytest.mark.parametrize("data", [None, (X, Y[:, 0])], ids=["landmarks", "data"])
def test_the_spread_of_an_exact_process(data):
    """Inside the rows, and far from all: within 5 % by the usual prior, where features alone fall short."""
    every = ka.features.nystrom(X, KERNEL, 40, rng=0)
    inverse = np.linalg.inv(KERNEL(X) + (NOISE[0] / AMPLITUDE[0]) ** 2 * np.eye(40))
    wanted = AMPLITUDE[0] * np.sqrt(1 - np.sum(KERNEL(NEW, X) @ inverse * KERNEL(NEW, X), axis=1))
    spread = process(every, 0).draw(4000, data=data, rng=2)(NEW).std(axis=-1)
    assert abs(np.mean(spread[:5] / wanted[:5]) - 1) < 0.05
    assert abs(spread[5] / wanted[5] - 1) < 0.05
    assert np.mean(process(PRIOR, 0).draw(4000, rng=2)(NEW).std(axis=-1)[:5] / wanted[:5]) < 0.9


@pytest.mark.parametrize("name", ["landmarks", "features", "data"])
def test_functions_of_any_rows(name, xp):
    """The same functions at every call, of every library; their pullback is their slope."""
    phi, data = (RANDOM, None) if name == "features" else (NYSTROM, (X, Y) if name == "data" else None)
    draws = process(phi).draw(3, data=data, rng=0)
    wanted = draws(NEW)
    assert wanted.shape == (6, 2, 3)
    np.testing.assert_allclose(draws(NEW[None, 2:4])[0], wanted[2:4], rtol=1e-9)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-4)):
        with xp.wide():
            x = xp.asarray(NEW, dtype)
            got = draws(x)
            assert xp.holds(got)
            assert got.dtype == x.dtype
            np.testing.assert_allclose(to_numpy(got), wanted, rtol=tolerance, atol=tolerance)
    g = RNG.standard_normal(wanted.shape)
    out, pullback = ka.vjp(draws, NEW)
    np.testing.assert_allclose(out, wanted, rtol=1e-12)
    np.testing.assert_allclose(pullback(g).x, slope(lambda x: np.sum(g * draws(x)), NEW), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("phi", [NYSTROM, RANDOM], ids=["nystrom", "random"])
@pytest.mark.parametrize("name", ["mean", "variance"])
def test_gradients_of_predictions(phi, name):
    both = process(phi)
    out, pullback = ka.vjp(getattr(both, name), NEW)
    g, h = RNG.standard_normal(out.shape), 1e-5
    found = pullback(g)
    np.testing.assert_allclose(found.x, slope(lambda x: np.sum(g * getattr(both, name)(x)), NEW), rtol=1e-5, atol=1e-6)

    def value(noise, amplitude):
        one = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y), noise=noise, amplitude=amplitude)
        return np.sum(g * getattr(one, name)(NEW), axis=0)

    by_noise = (value(NOISE + h, AMPLITUDE) - value(NOISE - h, AMPLITUDE)) / (2 * h)
    by_amplitude = (value(NOISE, AMPLITUDE + h) - value(NOISE, AMPLITUDE - h)) / (2 * h)
    np.testing.assert_allclose(found.noise, by_noise, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.amplitude, by_amplitude, rtol=1e-5, atol=1e-7)


def test_locally_periodic_functions():
    """A prior of a product of kernels, one of whole frequencies."""
    kernel = ka.kernels.Gaussian(8.0) * ka.kernels.Periodic(1.0)
    x = np.linspace(0, 2, 30)[:, None]
    phi = ka.features.nystrom(x, kernel, 15, rng=0)
    one = ka.solvers.gp(ka.solvers.moments(x, phi, y=np.sin(2 * np.pi * x[:, 0])), noise=0.1, amplitude=1.0)
    new = np.array([[0.3], [3.3]])
    many = ka.random_features(kernel, 1, 2**14, "trigonometric", "iid", rng=0)  # few of them are fast
    here, after = one.draw(500, prior=many, rng=0)(new)
    assert min(here.mean(), after.mean()) > 0.8  # of sin(0.6 pi) = 0.95
    np.testing.assert_allclose([here.std(), after.std()], np.sqrt(one.variance(new)), rtol=0.15)


@pytest.mark.parametrize(
    "kernel",
    [
        9.0 * ka.kernels.Gaussian(8.0) * ka.kernels.Periodic(1.0) + ka.kernels.Polynomial(1) + ka.kernels.Matern(1.5),
        0.5 * ka.kernels.Laplacian(),
        ka.kernels.Polynomial(1, coef0=1.0) * (ka.kernels.Periodic() + ka.kernels.Gaussian()),
    ],
    ids=["sum", "multiple", "product"],
)
def test_functions_of_kernels_that_are_made_of_others(kernel):
    """Each member has the projection that it takes, and the sizes of a sum's terms need not divide 2,048."""
    x = np.linspace(0, 2, 30)[:, None]
    phi = ka.features.nystrom(x, kernel, 10, rng=0)
    one = ka.solvers.gp(ka.solvers.moments(x, phi, y=x[:, 0]), noise=0.1, amplitude=1.0)
    far = np.array([[30.3]])
    for data in (None, (x, x[:, 0])):
        values = one.draw(400, data=data, rng=0)(far)
        np.testing.assert_allclose(values.std(), np.sqrt(one.variance(far)[0]), rtol=0.2)


@pytest.mark.parametrize("data", [False, True])
def test_functions_beyond_the_dtype_of_rows(data):
    """Terms beyond float16 and weights beyond float32 make no NaN: functions are those of float64, cast."""
    for unit, dtype in ((2.0**16, "f2"), (1e39, "f4"), (1e-39, "f4")):
        y = unit * Y
        process = ka.solvers.gp(ka.solvers.moments(X, NYSTROM, y=y), noise=0.3 * unit, amplitude=unit)
        f, x = process.draw(3, prior=PRIOR, data=(X, y) if data else None, rng=0), X.astype(dtype)
        with np.errstate(over="ignore", under="ignore"):
            want = f(x.astype("f8")).astype(dtype)
        np.testing.assert_allclose(f(x), want, rtol=5e-3, atol=1e-3 * unit)


def test_refusals():
    one = process(NYSTROM, 0)
    for call in (one.draw, lambda count: one.sample(NEW, count)):
        with pytest.raises(ParameterError, match="count must be a positive integer"):
            call(0)
    with pytest.raises(ParameterError, match="prior must be a map of rows of d = 2"):
        one.draw(2, prior=ka.random_features(KERNEL, 3, 8, rng=0))
    with pytest.raises(ParameterError, match="features of other maps are their prior"):
        process(RANDOM).draw(2, prior=PRIOR)
    with pytest.raises(ParameterError, match=r"data must be a pair \(x, y\)"):
        one.draw(2, data=X)
    with pytest.raises(ShapeError, match="as the targets of the process"):
        one.draw(2, data=(X, Y))
    with pytest.raises(ShapeError, match="d = 2"):
        one.draw(2)(np.ones((3, 4)))
    plain = ka.solvers.gp(ka.solvers.moments(X, ka.features.elu1(), y=Y), noise=0.3, amplitude=1.0)
    with pytest.raises(ParameterError, match="phi must be a map of a kernel where data is given"):
        plain.draw(2, prior=PRIOR, data=(X, Y))
    assert plain.draw(2, rng=0)(NEW).shape == (6, 2, 2)
    own = ka.features.nystrom(KERNEL(X), "precomputed", 8, rng=0)
    closed = ka.solvers.gp(ka.solvers.moments(KERNEL(X), own, y=Y), noise=0.3, amplitude=1.0)
    for refused in (closed.draw, lambda count: closed.sample(KERNEL(X), count)):
        with pytest.raises(NoClosedForm, match="precomputed"):
            refused(2)
    with pytest.raises(ParameterError, match="lengthscale must be"):
        ka.kernels.Periodic(lengthscale=-1.0)
    with pytest.raises(ShapeError, match="period has 2 entries"):
        ka.kernels.Periodic((1.0, 2.0))(np.ones((2, 3)))
