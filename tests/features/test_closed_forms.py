"""Mean and variance in closed form against Monte Carlo over redraws, |z| < 4.5.

Only at |x + y|^2 <= 1/2, where the fourth moments of exponential terms are far below the number of draws.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest

import kernattn as ka
from covering import turns
from laws import arrays

D, DRAWS, TILT = 6, 4000, -0.15
P = ka.projections
PROJECTIONS = {
    "iid": P.Iid(),
    "iid sqrt_d": P.Iid(norms="sqrt_d"),
    "orthogonal": P.Orthogonal(),
    "orthogonal gram_schmidt": P.Orthogonal(method="gram_schmidt"),
    "orthogonal sqrt_d": P.Orthogonal(norms="sqrt_d"),
}
NUMBERS = [4, 6, 15]  # m < d, = d, = 2.5 d
ESTIMATORS = ["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"]


def directions():
    """Unit vectors: along an axis, along the diagonal, and any."""
    return np.stack([np.eye(D)[0], np.ones(D) / np.sqrt(D), np.arange(1.0, D + 1) * (-1) ** np.arange(D) / np.sqrt(91)])


def scaled_pairs(estimator):
    """Pairs x', y' in the kernel's own scale."""
    u, w = directions(), np.roll(directions(), 1, axis=0)
    if estimator in ("trigonometric", "phase"):
        return np.concatenate([0.4 * u, 0.9 * u, 0.5 * w]), np.concatenate([-0.3 * u, -0.6 * u, 0.5 * u])
    return np.concatenate([0.3 * u, 0.5 * u, 0.4 * u]), np.concatenate([0.2 * u, -0.2 * u, 0.3 * w])


@cache
def frequencies(projection, m):
    rng = np.random.default_rng(100 + m)
    return np.stack([PROJECTIONS[projection].draw(m, D, rng) for _ in range(DRAWS)])  # (draws, m, d)


def terms(estimator, omega, x, y, *, softmax):
    """One frequency's term of the estimate, (draws, m)."""
    wx, wy = omega @ x, omega @ y
    n = x @ x + y @ y
    row = np.exp(n / 2) if softmax else 1.0
    if estimator == "trigonometric":
        return row * np.cos(wx - wy)
    if estimator == "phase":
        b = np.random.default_rng(7).uniform(0, 2 * np.pi, wx.shape)
        return row * 2 * np.cos(wx + b) * np.cos(wy + b)
    if estimator == "positive":
        return row * np.exp(wx + wy - n)
    if estimator == "hyperbolic":
        return row * np.cosh(wx + wy) * np.exp(-n)
    tilted = 2 * TILT * np.sum(omega**2, axis=-1) + np.sqrt(1 - 4 * TILT) * (wx + wy) - n
    return row * (1 - 4 * TILT) ** (D / 2) * np.exp(tilted)


def drawn_map(estimator, kernel, projection, m):
    paired = estimator in ("trigonometric", "hyperbolic")
    phi = ka.random_features(kernel, D, 2 * m if paired else m, estimator, PROJECTIONS[projection], rng=0)
    if estimator == "optimal_positive":
        from dataclasses import replace

        phi = replace(phi, tilt=TILT)
    return phi


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimator", "projection", "m", "softmax"),
    turns(product(ESTIMATORS, PROJECTIONS), product(NUMBERS, [True, False])),
)
def test_mean_and_variance(estimator, projection, m, softmax):
    kernel = ka.kernels.Softmax() if softmax else ka.kernels.Gaussian(np.linspace(0.5, 2.0, D))
    phi = drawn_map(estimator, kernel, projection, m)
    x, y = scaled_pairs(estimator)
    c = kernel.input_scale(D)
    mean, variance, bias = phi.mean(x / c, y / c), phi.variance(x / c, y / c), phi.bias(x / c, y / c)
    np.testing.assert_allclose(bias, mean - kernel.pairs(x / c, y / c), rtol=1e-9, atol=1e-14)
    if "sqrt_d" not in projection:
        np.testing.assert_allclose(bias, 0, atol=1e-12)
    for i in range(len(x)):
        estimate = terms(estimator, frequencies(projection, m), x[i], y[i], softmax=softmax).mean(axis=1)
        spread = estimate.std()
        if spread < 1e-10:  # nothing random is left of the estimate
            np.testing.assert_allclose(estimate, mean[i], rtol=1e-9)
            assert variance[i] < 1e-18
            continue
        assert abs(estimate.mean() - mean[i]) / (spread / np.sqrt(DRAWS)) < 4.5, f"mean of pair {i}"
        centred = (estimate - estimate.mean()) ** 2
        assert abs(centred.mean() - variance[i]) / (centred.std() / np.sqrt(DRAWS)) < 4.5, f"variance of pair {i}"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimator", "projection", "kernel"),
    turns(ESTIMATORS, product(["iid", "orthogonal"], [ka.kernels.Softmax(), ka.kernels.Gaussian(0.7)])),
)
def test_redraws_are_unbiased_in_any_direction(estimator, projection, kernel):
    draws, d = 200, 16
    u = np.stack([np.eye(d)[0], np.ones(d) / 4.0, arrays(3, (d,))[0].astype(float)])
    u[2] /= np.linalg.norm(u[2])
    c = kernel.input_scale(d)
    pairs = [(0.6 * u / c, 0.3 * u / c), (0.5 * u / c, 0.4 * np.roll(u, 1, axis=0) / c)]
    x, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
    phi = ka.random_features(kernel, d, 20, estimator, projection, rng=0)  # more than one block where not paired
    rng = np.random.default_rng(11)
    estimates = np.stack([np.sum(each(x) * each(y), axis=-1) for each in (phi.redraw(rng) for _ in range(draws))])
    z = (estimates.mean(axis=0) - kernel.pairs(x, y)) / (estimates.std(axis=0) / np.sqrt(draws))
    assert (np.abs(z) < 4.5).all(), z


def test_known_special_cases():
    """Formulas that are closed without the radial law."""
    x, y = (0.4 * a for a in arrays(1, (5, D), (5, D), dtype="float64"))
    z2, v2 = np.sum((x - y) ** 2, -1), np.sum((x + y) ** 2, -1)
    n = np.sum(x**2 + y**2, -1)
    gaussian, softmax = ka.kernels.Gaussian(), ka.kernels.Softmax(scale=1.0)
    m = 10

    def variance(kernel, estimator, number, tilt=None):
        phi = ka.random_features(kernel, D, number, estimator, "iid", rng=0)
        if tilt is not None:
            from dataclasses import replace

            phi = replace(phi, tilt=tilt)
        return phi.variance(x, y)

    np.testing.assert_allclose(variance(gaussian, "trigonometric", 2 * m), (1 - np.exp(-z2)) ** 2 / (2 * m), rtol=1e-10)
    np.testing.assert_allclose(
        variance(softmax, "trigonometric", 2 * m), np.exp(n) * (1 - np.exp(-z2)) ** 2 / (2 * m), rtol=1e-10
    )
    phase = (1 + np.exp(-2 * z2) / 2 - np.exp(-z2)) / m
    np.testing.assert_allclose(variance(gaussian, "phase", m), phase, rtol=1e-10)
    square = np.exp(2 * np.sum(x * y, -1))
    positive = np.exp(v2) * square * (1 - np.exp(-v2)) / m
    np.testing.assert_allclose(variance(softmax, "positive", m), positive, rtol=1e-10)
    np.testing.assert_allclose(variance(softmax, "hyperbolic", 2 * m), positive * (1 - np.exp(-v2)) / 2, rtol=1e-9)
    a = -0.1
    second = (1 - 4 * a) ** D * (1 - 8 * a) ** (-D / 2) * np.exp(2 * (1 - 4 * a) * v2 / (1 - 8 * a) - n)
    np.testing.assert_allclose(variance(softmax, "optimal_positive", m, a), (second - square) / m, rtol=1e-9)


def test_orthogonal_is_not_always_better():
    """Ratios of variances at d = 8, full blocks: .27 (z = .5) .24 (1) .34 (1.5) .64 (2) 1.002 (3)."""
    x = np.zeros((5, 8))
    y = x.copy()
    y[:, 0] = [0.5, 1.0, 1.5, 2.0, 3.0]
    kernel = ka.kernels.Gaussian()
    orthogonal, iid = (
        ka.random_features(kernel, 8, 32, "trigonometric", p, rng=0).variance(x, y) for p in ("orthogonal", "iid")
    )
    np.testing.assert_allclose(orthogonal / iid, [0.27, 0.24, 0.34, 0.64, 1.002], atol=6e-3)


def test_closed_forms_keep_kind_and_shape(xp):
    kernel = ka.kernels.Gaussian(2.0)
    phi = ka.random_features(kernel, D, 12, "positive", rng=0)
    x, y = arrays(2, (3, 4, D), (3, 4, D))
    from xp import dtype_name, to_numpy

    for method in ("mean", "bias", "variance"):
        got = getattr(phi, method)(xp.asarray(x), xp.asarray(y))
        assert xp.holds(got)
        assert dtype_name(got) == "float32"
        np.testing.assert_allclose(
            to_numpy(got), getattr(phi, method)(x.astype(float), y.astype(float)), rtol=1e-4, atol=1e-6
        )


def test_exact_maps_have_no_error():
    x, y = arrays(2, (4, D), (4, D), dtype="float64")
    for phi in (ka.features.elu1(), ka.features.relu(), ka.features.exp(), ka.features.polynomial(2)):
        np.testing.assert_allclose(phi.mean(x, y), np.sum(phi(x) * phi(y), axis=-1), rtol=1e-12, atol=1e-12)
        assert (phi.variance(x, y) == 0).all()
        assert (phi.bias(x, y) == 0).all()


@pytest.mark.parametrize("method", ["mean", "bias", "variance"])
def test_no_closed_form(method):
    phi = ka.features.generalized("sigmoid", D, 8, rng=0)
    with pytest.raises(ka.errors.NoClosedForm, match=f"{method} of Generalized"):
        getattr(phi, method)(np.ones((2, D)), np.ones((2, D)))
