"""Features of histograms: the sampled additive kernel and the random ones of the skewed kernel."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from saved import reloaded
from xp import dtype_name, to_numpy

K = ka.kernels
D = 4


def histograms(seed, n):
    rows = np.random.default_rng(seed).gamma(0.7, size=(n, D))
    rows[0, 1] = 0.0
    return rows / rows.sum(axis=1, keepdims=True)


# ---- additive ----


def sampled(x, n, interval):
    """Vedaldi and Zisserman (2012), equation 11, axis by axis."""
    with np.errstate(divide="ignore"):
        log = np.where(x > 0, np.log(x), 0.0)
    parts = [np.sqrt(x * interval)]
    for j in range(1, n):
        weight = np.sqrt(2 * x * interval / np.cosh(np.pi * j * interval))
        parts += [weight * np.cos(j * interval * log), weight * np.sin(j * interval * log)]
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize(("n", "interval"), [(1, 0.8), (2, 0.5), (3, 0.4), (8, 0.25)])
def test_sampled_features(n, interval, xp):
    x = histograms(0, 6)
    phi = ka.random_features(K.AdditiveChi2(), D, (2 * n - 1) * D, rng=0)
    got = phi(xp.asarray(x, "float32"))
    assert xp.holds(got)
    assert dtype_name(got) == "float32"
    np.testing.assert_allclose(to_numpy(got), sampled(x, n, interval), atol=2e-6)


def test_scikit_learn_agrees():
    approximation = pytest.importorskip("sklearn.kernel_approximation")
    x = histograms(1, 6)
    for n in (1, 2, 3):
        wanted = approximation.AdditiveChi2Sampler(sample_steps=n).fit_transform(x)
        np.testing.assert_allclose(
            ka.random_features(K.AdditiveChi2(), D, (2 * n - 1) * D, rng=0)(x), wanted, atol=1e-14
        )


def test_the_error_is_the_bias_and_falls():
    x, y = histograms(2, 40), histograms(3, 40)
    errors = []
    for n in (1, 2, 3, 6, 12):
        phi = ka.random_features(K.AdditiveChi2(), D, (2 * n - 1) * D, rng=0)
        bias = phi.bias(x, y)
        np.testing.assert_allclose(bias, np.sum(phi(x) * phi(y), axis=1) - K.AdditiveChi2().pairs(x, y), atol=1e-14)
        np.testing.assert_allclose(phi.mean(x, y), np.sum(phi(x) * phi(y), axis=1), atol=1e-14)
        assert (phi.variance(x, y) == 0).all()
        assert phi.redraw(3) is phi
        errors.append(np.abs(bias).max())
    assert (np.diff(errors) < 0).all(), errors
    assert errors[-1] < 0.01


def test_additive_refusals(tmp_path):
    phi = ka.random_features(K.AdditiveChi2(), D, 3 * D, rng=0)
    with pytest.raises(ParameterError, match="x must not be negative"):
        phi(np.full((2, D), -0.1))
    for m in (2 * D, D - 1, 3 * D + 1):
        with pytest.raises(ParameterError, match=f"odd multiple of dim .* got {m}"):
            ka.random_features(K.AdditiveChi2(), D, m, rng=0)
    with pytest.raises(ParameterError, match="leave projection at its default"):
        ka.random_features(K.AdditiveChi2(), D, D, projection="iid", rng=0)
    with pytest.raises(ParameterError, match="one of sampled"):
        ka.random_features(K.AdditiveChi2(), D, D, "trigonometric", rng=0)
    reloaded(phi, tmp_path)


# ---- skewed ----


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ["trigonometric", "phase"])
def test_skewed_mean_and_variance(estimator):
    x, y, m, draws = histograms(4, 8), histograms(5, 8), 6, 20_000
    kernel = K.SkewedChi2(0.1)
    paired = 2 if estimator == "trigonometric" else 1
    phi = ka.random_features(kernel, D, paired * m, estimator, "iid", rng=0)
    mean, variance = phi.mean(x, y), phi.variance(x, y)
    np.testing.assert_allclose(mean, kernel.pairs(x, y), rtol=1e-12)
    np.testing.assert_allclose(phi.bias(x, y), 0, atol=1e-12)
    drawn = ka.random_features(kernel, D, paired * m * draws, estimator, "iid", rng=6).inner
    u, v = drawn.omega @ np.log(x + 0.1).T, drawn.omega @ np.log(y + 0.1).T
    if estimator == "trigonometric":
        terms = np.cos(u - v)
    else:
        terms = 2 * np.cos(u + drawn.phase[:, None]) * np.cos(v + drawn.phase[:, None])
    estimates = terms.reshape(draws, m, -1).mean(axis=1)
    assert (np.abs(estimates.mean(axis=0) - mean) / (estimates.std(axis=0) / np.sqrt(draws)) < 4.5).all()
    squares = (estimates - mean) ** 2
    assert (np.abs(squares.mean(axis=0) - variance) / (squares.std(axis=0) / np.sqrt(draws)) < 4.5).all()


def test_skewed_features(xp, tmp_path):
    x = histograms(7, 6)
    phi = ka.random_features(K.SkewedChi2(0.2), D, 8, projection="iid", rng=1)
    u = np.log(x + 0.2) @ phi.inner.omega.T
    got = phi(xp.asarray(x, "float32"))
    assert xp.holds(got)
    np.testing.assert_allclose(to_numpy(got), np.concatenate([np.cos(u), np.sin(u)], axis=-1) / 2, atol=2e-5)
    reloaded(phi, tmp_path, x)


def test_skewed_refusals():
    phi = ka.random_features(K.SkewedChi2(0.2), D, 8, projection="iid", rng=0)
    good, bad = np.zeros((2, D)), np.full((2, D), -0.2)
    for call in (lambda: phi(bad), lambda: phi.variance(bad, good), lambda: phi.mean(good, bad)):
        with pytest.raises(ParameterError, match=r"must be above -skewedness = -0\.2"):
            call()
    with pytest.raises(ParameterError, match=r"data must be above -skewedness"):
        ka.random_features(K.SkewedChi2(0.2), D, 8, projection="iid", data=bad, rng=0)
    with pytest.raises(ShapeError, match="d = 4"):
        phi.mean(np.ones((2, 3)), np.ones((2, 3)))
    auto = ka.random_features(K.SkewedChi2(0.2), D, 8, projection="iid", data=histograms(8, 9), rng=0)
    assert type(auto.inner) is ka.features.Trigonometric
