"""One law for pairs of dependent rows, against integrals over their norms."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from covering import turns
from kernattn.projections import NORM_LAWS, Pair


@pytest.mark.parametrize("cosine", [-1.0, -0.25, 0.0, 0.25, 1.0])
@pytest.mark.parametrize("d", [2, 3, 7])
def test_independent_norms_at_an_angle(d, cosine):
    """Against a double integral over norms."""

    def wanted(t2, tilt):
        def inner(r, q):
            rho2 = r * r + q * q + 2 * cosine * r * q
            weight = np.exp(tilt * (r * r + q * q)) * special.hyp0f1(d / 2, t2 * rho2 / 4)
            return stats.chi(d).pdf(r) * stats.chi(d).pdf(q) * weight

        x, w = np.polynomial.legendre.leggauss(80)
        r, w = 8 * (x + 1), 8 * w
        return w @ inner(r[:, None], r) @ w

    chi = NORM_LAWS["chi"]
    for t2 in (-9.0, -1.0, 0.0):
        np.testing.assert_allclose(Pair(cosine).moment(chi, d, t2), wanted(t2, 0.0), atol=1e-10)
    for t2, tilt in ((0.0, 0.0), (1.0, 0.0), (4.0, 0.0), (2.0, -0.2), (1.0, 0.05)):
        np.testing.assert_allclose(Pair(cosine).log_moment(chi, d, t2, tilt), np.log(wanted(t2, tilt)), atol=1e-9)


@pytest.mark.parametrize(("d", "cosine"), turns([1, 2, 5, 64], [-0.5, 0.0, 1.0]))
def test_coupled_norms_at_an_angle(d, cosine):
    """Against an integral over the norm of one of them."""
    law = stats.chi(d)

    def wanted(t2, tilt):
        def integrand(r):
            q = law.isf(law.cdf(r)) if r < law.median() else law.ppf(law.sf(r))
            rho2 = r * r + q * q + 2 * cosine * r * q
            return law.pdf(r) * np.exp(tilt * (r * r + q * q)) * special.hyp0f1(d / 2, t2 * rho2 / 4)

        ends = law.isf([1 - 1e-13, 0.5, 1e-13])
        return sum(integrate.quad(integrand, a, b, epsabs=1e-12, limit=100)[0] for a, b in pairwise(ends))

    pair, chi = Pair(cosine, "coupled"), NORM_LAWS["chi"]
    for t2 in (-4.0, 0.0):
        np.testing.assert_allclose(pair.moment(chi, d, t2), wanted(t2, 0.0), atol=1e-9)
    for t2, tilt in ((0.0, 0.0), (1.0, 0.0), (2.0, -0.2)):
        np.testing.assert_allclose(pair.log_moment(chi, d, t2, tilt), np.log(wanted(t2, tilt)), atol=1e-9)


@pytest.mark.parametrize("law", NORM_LAWS)
def test_pairs_without_an_average(law):
    law, t2 = NORM_LAWS[law], np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(Pair(0.0).moment(law, 6, -t2), law.moment(6, -t2, rows=2))
    np.testing.assert_allclose(Pair(-1.0, "equal").moment(law, 6, -t2), 1.0)
    np.testing.assert_allclose(Pair(1.0, "equal").moment(law, 6, -t2), law.moment(6, -4 * t2))
    np.testing.assert_allclose(
        Pair(1.0, "equal").log_moment(law, 6, t2, -0.1), law.log_moment(6, 4 * t2, tilt=-0.2), atol=1e-14
    )
    np.testing.assert_allclose(Pair(0.3).moment(NORM_LAWS["sqrt_d"], 6, -t2), special.hyp0f1(3, -6 * 2.6 * t2 / 4))


@pytest.mark.parametrize("pair", [Pair(0.0), Pair(-0.2), Pair(0.0, "coupled"), Pair(-1.0, "equal")], ids=repr)
def test_shapes_of_moments(pair):
    law, t2 = NORM_LAWS["chi"], np.random.default_rng(0).uniform(0, 9, (2, 3, 4))
    for moment, values in ((pair.moment, -t2), (pair.log_moment, t2)):
        got = moment(law, 5, values)
        np.testing.assert_allclose(got.ravel(), [moment(law, 5, v) for v in values.flat], rtol=1e-12, atol=1e-12)
        assert got.shape == t2.shape
        assert moment(law, 5, np.ones((0, 2))).shape == (0, 2)
        assert moment(law, 5, 0.0).shape == ()
        assert np.isnan(moment(law, 5, np.nan))
