"""Spectral approximation and effective dimension against closed forms and their definitions."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.metrics import effective_dimension, spectral_delta


def test_effective_dimension_of_known_spectra():
    """Of n equal rows n / (n + ridge), of n rows at right angles n / (1 + ridge); as the ridge goes to 0, the rank."""
    assert effective_dimension(np.ones((9, 9)), 3.0) == pytest.approx(9 / 12)
    assert effective_dimension(np.eye(9), 3.0) == pytest.approx(9 / 4)
    x = np.random.default_rng(0).standard_normal((12, 4))
    assert effective_dimension(x @ x.T, 1e-9) == pytest.approx(4)
    assert effective_dimension(np.zeros((3, 3)), 1.0) == 0


def test_delta_is_the_trace_it_says_it_is():
    rng = np.random.default_rng(1)
    x, z = rng.standard_normal((2, 7, 3))
    k, estimate, ridge = x @ x.T, z @ z.T, 0.3
    inverse = np.linalg.inv(k + ridge * np.eye(7))
    assert effective_dimension(k, ridge) == pytest.approx(np.trace(k @ inverse))
    relative = np.linalg.eigvals((estimate - k) @ inverse)  # similar to the symmetric form
    assert spectral_delta(estimate, k, ridge) == pytest.approx(np.max(np.abs(relative)))


def test_delta_of_multiples_and_of_nothing():
    """K' = c K errs by ``|c - 1| top / (top + ridge)``; K' = 0 by that with c = 0, and no error by 0."""
    k = np.array([[2.0, 1.0], [1.0, 2.0]])
    for c in (0.0, 0.5, 1.0, 3.0):
        assert spectral_delta(c * k, k, 0.5) == pytest.approx(abs(c - 1) * 3 / 3.5, abs=1e-15)


def test_delta_sandwiches_and_is_the_least_that_does():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((20, 3))
    phi = ka.random_features(ka.kernels.Gaussian(), 3, 64, rng=3)
    k, estimate, ridge = ka.kernels.Gaussian()(x), phi(x) @ phi(x).T, 0.1
    delta = spectral_delta(estimate, k, ridge)
    exact, other = k + ridge * np.eye(20), estimate + ridge * np.eye(20)

    def holds(delta):
        low = np.linalg.eigvalsh(other - (1 - delta) * exact)[0]
        high = np.linalg.eigvalsh((1 + delta) * exact - other)[0]
        return min(low, high) > -1e-12

    assert holds(delta)
    assert not holds(0.999 * delta)


def test_a_ridge_far_below_the_matrix():
    assert effective_dimension(np.diag([1e300, 0.0]), 1e-300) == 1
    assert spectral_delta(np.diag([2e300, 0.0]), np.diag([1e300, 0.0]), 1e-300) == pytest.approx(1)
