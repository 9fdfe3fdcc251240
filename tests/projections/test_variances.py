"""Means and variances of maps against draws, and their order."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from covering import turns
from structured import CLOSED, SPECS, redraws, unit, z_score

P = ka.projections

ESTIMATORS = ["trigonometric", "phase", "positive", "hyperbolic", "optimal_positive"]
SMALL, TILT = 5, -0.15


def samples_of(estimator, omega, x, y):
    """Estimates, (draws,), from draws of the frequencies, (draws, m, d); of the Gaussian kernel by cosines."""
    wx, wy, n = omega @ x, omega @ y, x @ x + y @ y
    if estimator == "trigonometric":
        return np.mean(np.cos(wx - wy), axis=-1)
    if estimator == "phase":
        b = np.random.default_rng(7).uniform(0, 2 * np.pi, wx.shape)
        return np.mean(2 * np.cos(wx + b) * np.cos(wy + b), axis=-1)
    if estimator == "positive":
        return np.mean(np.exp(wx + wy - n / 2), axis=-1)
    if estimator == "hyperbolic":
        return np.mean(np.cosh(wx + wy) * np.exp(-n / 2), axis=-1)
    logs = 2 * TILT * np.sum(omega**2, axis=-1) + np.sqrt(1 - 4 * TILT) * (wx + wy) - n / 2
    return np.mean((1 - 4 * TILT) ** (SMALL / 2) * np.exp(logs), axis=-1)


def check_moments(estimator, name, omega):
    """Mean and variance against draws, along an axis, the diagonal, and any direction."""
    paired, cosines = estimator in ("trigonometric", "hyperbolic"), estimator in ("trigonometric", "phase")
    kernel = ka.kernels.Gaussian() if cosines else ka.kernels.Softmax(scale=1.0)
    phi = ka.random_features(kernel, SMALL, omega.shape[1] * (1 + paired), estimator, SPECS[name], rng=0)
    if estimator == "optimal_positive":
        phi = replace(phi, tilt=TILT)
    for u in unit(np.stack([np.eye(SMALL)[0], np.ones(SMALL), np.arange(1.0, SMALL + 1)])):
        x, y = (0.8 * u, -0.4 * u) if cosines else (0.3 * u, 0.2 * u)
        mean, variance, samples = phi.mean(x, y), phi.variance(x, y), samples_of(estimator, omega, x, y)
        if "sqrt_d" not in name:
            np.testing.assert_allclose(mean, kernel.pairs(x, y), rtol=1e-10)
        assert abs(z_score(samples, mean)) < 4.5
        assert abs(z_score((samples - samples.mean()) ** 2, variance)) < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "estimator"), turns(CLOSED, ESTIMATORS))
def test_mean_and_variance(name, estimator):
    check_moments(estimator, name, redraws(name, 2 * SMALL, SMALL, 10_000))


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "estimator"), turns(CLOSED, ["trigonometric", "positive"]))
def test_mean_and_variance_of_part_of_a_block(name, estimator):
    """Six rows: of two blocks of five, or of three and their opposites."""
    rng = np.random.default_rng(5)
    check_moments(estimator, name, np.stack([SPECS[name].draw(6, SMALL, rng) for _ in range(400)]))


def test_order_of_geometries():
    """For positive features, at these distances: antithetic, simplex, coupled, orthogonal, iid."""
    y = np.zeros((4, 16))
    y[:, 1] = [0.3, 0.7, 1.0, 1.5]

    def variance(projection):
        return ka.random_features(ka.kernels.Softmax(scale=1.0), 16, 32, "positive", projection, rng=0).variance(
            0 * y, y
        )

    order = [variance(p) for p in ("antithetic", "simplex", P.Orthogonal(norms="coupled"), "orthogonal", "iid")]
    assert (np.diff(order, axis=0) > 0).all()


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["orthogonal", "simplex"])
def test_frequencies_that_add(name):
    """Of a product of kernels: moments of w + w' multiply, those of cos w.s cos w'.s do not."""
    kernel = ka.kernels.Gaussian() * ka.kernels.Gaussian(0.8)
    phi = ka.random_features(kernel, 3, 6, "trigonometric", name, rng=0)
    x, y = np.zeros((2, 3)), np.array([[0.8, 0.0, 0.1], [0.5, 0.5, -0.4]])
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(500))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, kernel.pairs(x, y))).max() < 4.5
    assert np.abs(z_score((samples - samples.mean(axis=0)) ** 2, phi.variance(x, y))).max() < 4.5
