"""Norms of Matern and rational quadratic frequencies: their law, and moments against other routes to them."""

import numpy as np
import pytest
from scipy import stats

from kernattn.errors import ParameterError
from kernattn.projections import NORM_LAWS
from kernattn.projections._scale_mixtures import MaternNorms, RationalQuadraticNorms

Z2 = np.array([1e-10, 1e-4, 0.01, 0.3, 1.0, 4.0, 20.0, 1e3, 1e8])
SHAPES = [0.05, 0.5, 1.0, 2.5, 30.0, 1e4]


def laws(shape):
    return MaternNorms(shape), RationalQuadraticNorms(shape)


@pytest.mark.statistical
@pytest.mark.parametrize("d", [1, 3, 50])
@pytest.mark.parametrize("shape", [0.5, 3.0])
def test_norms_have_their_law(shape, d):
    n = 20_000
    t, mixture = (law.sample(n, d, np.random.default_rng(1)) for law in laws(shape))
    assert stats.kstest(t**2 / d, stats.f(d, 2 * shape).cdf).pvalue > 1e-5
    rng = np.random.default_rng(2)
    gaussians = rng.standard_normal((n, d)) * np.sqrt(rng.gamma(shape, 1 / shape, (n, 1)))
    assert stats.ks_2samp(mixture**2, np.sum(gaussians**2, axis=1)).pvalue > 1e-5


@pytest.mark.parametrize("d", [1, 2, 3, 16, 257, 512])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_contour_gives_the_kernel(shape, d):
    """One row by Hankel's integral is the kernel in closed form, which is how moments of one row are computed."""
    for law in laws(shape):
        np.testing.assert_allclose(law._integral(d / 2, Z2, 1), law.moment(d, -Z2), atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5, 64])
def test_two_rows_end_in_those_of_gaussians(d):
    z2 = np.linspace(0.0, 12.0, 9)
    for law in laws(1e7):
        np.testing.assert_allclose(law.moment(d, -z2, rows=2), NORM_LAWS["chi"].moment(d, -z2, rows=2), atol=1e-6)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_two_rows_by_averaging_over_both_norms(d):
    """Against quadrature over both scales and the share of each, of the moment for Gaussians of one scale."""
    shape = 6.0  # scales of moderate spread, which Gauss-Laguerre nodes resolve
    nodes, weights = np.polynomial.laguerre.laggauss(60)
    weights = weights * stats.gamma(shape).pdf(nodes) * np.exp(nodes)
    x, w = np.polynomial.legendre.leggauss(40)
    angle, w = (x + 1) * np.pi / 4, w * np.pi / 4
    share = np.sin(angle) ** 2  # of the first row in rho^2, a Beta(d/2, d/2) variable
    w = w * (np.sin(angle) * np.cos(angle)) ** (d - 1)
    w /= w.sum()
    for law, scale in ((RationalQuadraticNorms(shape), nodes / shape), (MaternNorms(shape), shape / nodes)):
        mixed = share[:, None, None] * scale[:, None] + (1 - share[:, None, None]) * scale
        for z2 in (0.2, 1.0, 3.0):
            wanted = np.einsum("i,j,k,ijk", w, weights, weights, NORM_LAWS["chi"].moment(d, -z2 * mixed, rows=2))
            np.testing.assert_allclose(law.moment(d, -z2, rows=2), wanted, atol=1e-8)


@pytest.mark.parametrize("law", [MaternNorms(0.3), MaternNorms(2.5), RationalQuadraticNorms(0.4)], ids=repr)
def test_many_values_are_interpolated(law):
    for low, high in ((-2, 1), (-20, 3)):
        y = 10 ** np.random.default_rng(3).uniform(low, high, (50, 20))
        many = law.moment(3, -y, rows=2)
        np.testing.assert_allclose(many[0], law._integral(1.5, y[0], 2), atol=1e-10)
    same = law.moment(3, np.full(500, -0.7), rows=2)
    np.testing.assert_allclose(same, law.moment(3, -0.7, rows=2), atol=1e-10)


@pytest.mark.parametrize("law", laws(1.5), ids=repr)
def test_at_zero_and_where_nothing_exists(law):
    for rows in (1, 2):
        np.testing.assert_array_equal(law.moment(4, np.zeros(3), rows=rows), 1.0)
        with pytest.raises(ParameterError, match=r"t2 must not be positive with .* heavy; got 0\.5"):
            law.moment(4, 0.5, rows=rows)
        for tilt in (-0.1, 0.1):
            with pytest.raises(ParameterError, match="tilt must be 0 with"):
                law.moment(4, -1.0, rows=rows, tilt=tilt)
    with pytest.raises(ParameterError, match="t2 must not be positive"):
        law.log_moment(4, 1.0)


def test_parameters():
    for cls in (MaternNorms, RationalQuadraticNorms):
        for bad in (0, -1.0, np.nan, "1"):
            with pytest.raises(ParameterError, match="must be a"):
                cls(bad)
