"""What docstrings say of one estimator against another, over kernels, projections, dimensions and distances."""

import numpy as np
import pytest

import kernattn as ka

K = ka.kernels
Z = np.linspace(0.05, 6.0, 60)
IID = [K.Gaussian(), K.Softmax(1.0), K.Laplacian(), K.Cauchy(), K.Sech(), K.Matern(0.5), K.RationalQuadratic(1.0)]


def opposite(d):
    x = Z[:, None] * np.eye(d)[0] / 2
    return x, -x


def ratios(kernel, projection, d, over="phase", under="trigonometric", same=False):
    """Variances of two estimators at equal M over each other, of pairs Z apart, or with |x + y| = Z."""
    x, y = opposite(d)
    maps = [ka.random_features(kernel, d, 2 * d, name, projection, rng=0) for name in (over, under)]
    first, second = (phi.variance(x, x if same else y) for phi in maps)
    return first / second


@pytest.mark.parametrize("kernel", IID, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("d", [2, 4, 16])
def test_phase_against_trigonometric_with_iid_frequencies(kernel, d):
    x, y = opposite(d)
    maps = [ka.random_features(kernel, d, 8, name, "iid", rng=0) for name in ("phase", "trigonometric")]
    row = np.exp(kernel.row_exponent * np.sum(x**2 + y**2, axis=-1))
    near, far = kernel.pairs(x, y) / row, kernel.pairs(2 * x, 2 * y) / row**4
    difference = (maps[0].variance(x, y) - maps[1].variance(x, y)) / row**2
    np.testing.assert_allclose(difference, (near**2 - far / 2) / 8, atol=1e-12)


def test_phase_is_not_always_above():
    """Above for iid Gaussian frequencies; the exceptions are where the docstring puts them."""
    for d in (2, 4, 8, 16):
        assert np.min(ratios(K.Gaussian(), "iid", d)) > 1 - 1e-12
    for d, least in ((4, 0.993), (8, 0.997)):
        assert abs(np.min(ratios(K.Gaussian(), "orthogonal", d)) - least) < 1e-3
    assert 0.99 < np.min(ratios(K.Cauchy(), "iid", 2)) < 0.997
    assert np.min(ratios(K.Gaussian(), "antithetic", 2)) < 0.7


@pytest.mark.parametrize("d", [2, 4, 16])
def test_hyperbolic_features_are_below_positive_ones(d):
    """At equal M: by 1 - e^(-v^2) where frequencies are iid."""
    found = ratios(K.Softmax(1.0), "iid", d, "hyperbolic", "positive", same=True)
    np.testing.assert_allclose(found, -np.expm1(-(Z**2)), rtol=1e-9)
    assert np.max(ratios(K.Softmax(1.0), "orthogonal", d, "hyperbolic", "positive", same=True)) < 1 + 1e-12
