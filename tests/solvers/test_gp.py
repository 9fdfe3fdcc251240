"""Gaussian processes against dense inverses of the rows' covariance."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, KernattnError, NoClosedForm, ParameterError, ShapeError
from solvers.test_moments import MAPS, PHI, W, X, Y
from xp import to_numpy

NEW = np.random.default_rng(7).standard_normal((11, 3)) * 2
NYSTROM = MAPS["computed"]


def dense(phi, noise, amplitude, y, w=None):
    """Mean, variance and log evidence, by the covariance of the rows."""
    w = np.ones(len(X)) if w is None else w
    rows, new = phi(X), phi(NEW)
    covariance = amplitude**2 * rows @ rows.T + np.diag(noise**2 / w)
    across = amplitude**2 * new @ rows.T
    prior = np.sum(new**2, axis=1) if phi is not NYSTROM else np.ones(len(NEW))
    variance = amplitude**2 * prior - np.sum(across * np.linalg.solve(covariance, across.T).T, axis=1)
    return (
        across @ np.linalg.solve(covariance, y),
        variance,
        multivariate_normal(np.zeros(len(X)), covariance).logpdf(y),
    )


@pytest.mark.parametrize("weights", [None, W + 0.5], ids=["plain", "weighted"])
@pytest.mark.parametrize("phi", [PHI, NYSTROM], ids=["random", "nystrom"])
@pytest.mark.parametrize(("noise", "amplitude"), [(0.3, 2.0), (2.0, 0.1)])
def test_the_posterior(phi, noise, amplitude, weights):
    process = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y, weights=weights), noise=noise, amplitude=amplitude)
    missing = 0 if weights is None else np.sum(np.log(weights)) / 2
    for i in range(2):
        mean, variance, evidence = dense(phi, noise, amplitude, Y[:, i], weights)
        np.testing.assert_allclose(process.mean(NEW)[:, i], mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(process.variance(NEW)[:, i], variance, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(process.log_evidence[i] + missing, evidence, rtol=1e-9)
    one = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y[:, 1], weights=weights), noise=noise, amplitude=amplitude)
    np.testing.assert_allclose(one.mean(NEW), process.mean(NEW)[:, 1], rtol=1e-9, atol=1e-12)
    assert one.variance(NEW).shape == (11,)
    assert one.log_evidence.shape == one.gradient.log_noise.shape == ()


@pytest.mark.parametrize(("noise", "amplitude"), [(0.3, 2.0), (2.0, 0.1), (1.0, 1.0)])
def test_the_gradient(noise, amplitude):
    slopes, h = ka.solvers.gp(ka.solvers.moments(X, PHI, y=Y), noise=noise, amplitude=amplitude).gradient, 1e-4
    for i in range(2):

        def evidence(log_noise, log_amplitude, y=Y[:, i]):
            return dense(PHI, noise * np.exp(log_noise), amplitude * np.exp(log_amplitude), y)[2]

        wanted = (evidence(h, 0) - evidence(-h, 0)) / (2 * h), (evidence(0, h) - evidence(0, -h)) / (2 * h)
        np.testing.assert_allclose([each[i] for each in slopes], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("given", [{}, {"noise": 0.4}, {"amplitude": 1.5}], ids=["none", "noise", "amplitude"])
def test_the_largest_evidence(given):
    y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.2 * Y
    process = ka.solvers.gp(ka.solvers.moments(X, PHI, y=y), **given)
    for i in range(2):

        def loss(logs, target=y[:, i]):
            logs = iter(np.exp(logs))
            noise, amplitude = (given.get(name) or next(logs) for name in ("noise", "amplitude"))
            return -dense(PHI, noise, amplitude, target)[2]

        best = minimize(loss, np.zeros(2 - len(given)), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
        assert process.log_evidence[i] == pytest.approx(-best.fun, abs=1e-6)
    for name, slope in zip(("noise", "amplitude"), process.gradient, strict=True):
        if name not in given:
            np.testing.assert_allclose(slope, 0, atol=1e-2)
        else:
            np.testing.assert_array_equal(getattr(process, name), given[name])


def test_variance_far_away():
    """With a Nystrom map it comes back to the prior's."""
    far = np.full((1, 3), 50.0)
    m = ka.solvers.moments(X, NYSTROM, y=Y[:, 0])
    assert ka.solvers.gp(m, noise=0.1, amplitude=1.5).variance(far)[0] == pytest.approx(1.5**2, rel=1e-6)
    assert np.all(ka.solvers.gp(m, noise=0.1, amplitude=1.5).variance(X) < 1.5**2)


LINE = ka.features.linear(np.array([2.0, 1.0, 3.0]))
TURN = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [-0.3, 0.0, 0.1]])


@pytest.mark.parametrize("turn", [None, TURN], ids=["plain", "turned"])
@pytest.mark.parametrize("kernel", [ka.kernels.Matern(1.5, 2.0), ka.kernels.Polynomial(3)], ids=["matern", "power"])
def test_landmarks_beside_a_line_and_of_turned_rows(kernel, turn):
    """What landmarks lack is that of the kernel alone, at the rows that it sees; its pullback is that of the sum."""
    rows, new = (each if turn is None else each @ turn for each in (X, NEW))
    landmarks = ka.features.nystrom(rows, kernel, 6, rng=0)
    phi = landmarks + LINE if turn is None else ka.features.Transformed(landmarks + LINE, turn)
    process = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y[:, 0]), noise=0.3, amplitude=2.0)
    features, points = phi(NEW), phi(X)
    inner = np.linalg.inv(points.T @ points + 0.3**2 / 2.0**2 * np.eye(points.shape[1]))
    lacking = kernel(new) - landmarks(new) @ landmarks(new).T
    wanted = 0.3**2 * features @ inner @ features.T + 2.0**2 * lacking
    np.testing.assert_allclose(process.covariance(NEW), wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())
    np.testing.assert_allclose(process.variance(NEW), np.diag(wanted), rtol=1e-6)
    _, pullback = ka.vjp(process.variance, NEW)
    step, h = np.random.default_rng(0).standard_normal(NEW.shape), 1e-5
    change = np.sum(process.variance(NEW + h * step) - process.variance(NEW - h * step)) / (2 * h)
    np.testing.assert_allclose(np.sum(pullback(np.ones(len(NEW))).x * step), change, rtol=1e-5)


def test_variance_at_landmarks_is_not_negative():
    phi = ka.features.nystrom(X, ka.kernels.Gaussian(2.0), 20, rng=0)
    process = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y[:, 0]), noise=1e-4, amplitude=1.0)
    assert np.min(process.variance(phi.landmarks.astype("f4"))) >= 0


def test_arrays_of_every_kind(xp):
    process = ka.solvers.gp(ka.solvers.moments(X, NYSTROM, y=Y), noise=0.3, amplitude=2.0)
    with xp.wide():
        for dtype, tolerance in (("float32", 1e-3), ("float64", 1e-9)):
            x = xp.asarray(NEW, dtype)
            for got, wanted in ((process.mean(x), process.mean(NEW)), (process.variance(x), process.variance(NEW))):
                assert xp.holds(got)
                assert got.dtype == x.dtype
                np.testing.assert_allclose(to_numpy(got), wanted, rtol=tolerance, atol=tolerance)


def test_targets_of_0():
    m = ka.solvers.moments(X, PHI, y=np.zeros(len(X)))
    with pytest.raises(ParameterError, match="targets must not be 0 in all rows"):
        ka.solvers.gp(m, noise=1.0)
    process = ka.solvers.gp(m, noise=1.0, amplitude=1.0)
    np.testing.assert_array_equal(process.mean(X), 0.0)
    assert np.isfinite(process.gradient).all()


def test_refusals():
    m = ka.solvers.moments(X, PHI, y=Y)
    for given in (0.0, -1.0, np.nan, np.inf, 1e200, 1e-200, [1.0, 0.0]):
        with pytest.raises(ParameterError, match="noise must be positive"):
            ka.solvers.gp(m, noise=given, amplitude=1.0)
        with pytest.raises(ParameterError, match="amplitude must be positive"):
            ka.solvers.gp(m, noise=1.0, amplitude=given)
    with pytest.raises(ParameterError, match="noise must be numbers"):
        ka.solvers.gp(m, noise="evidence")
    process = ka.solvers.gp(m, noise=1.0, amplitude=1.0)
    for wrong in (True, X.astype(int), X[0], X[:0], X[:, :1]):
        with pytest.raises(KernattnError, match=r"^y must"):
            process.covariance(X, wrong)
    with pytest.raises(ShapeError, match="one for each of 2 targets"):
        ka.solvers.gp(m, noise=np.ones(3), amplitude=1.0)
    with pytest.raises(ParameterError, match="times the amplitude or more"):
        ka.solvers.gp(m, noise=1e-9, amplitude=1.0)
    with pytest.raises(EmptyInputError, match="without y"):
        ka.solvers.gp(ka.solvers.moments(X, PHI))
    with pytest.raises(EmptyInputError, match="1 rows at least"):
        ka.solvers.gp(ka.solvers.initial_moments(PHI, targets=0))
    with pytest.raises(DTypeError, match="moments must be a Moments"):
        ka.solvers.gp(None)
    gaussian = ka.kernels.Gaussian()
    own = ka.features.nystrom(gaussian(X), "precomputed", 8, method="uniform", rng=0)
    process = ka.solvers.gp(ka.solvers.moments(gaussian(X), own, y=Y), noise=0.3, amplitude=1.0)
    with pytest.raises(NoClosedForm, match="precomputed"):
        process.variance(gaussian(X))
