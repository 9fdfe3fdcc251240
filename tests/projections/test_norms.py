"""The radial law: against high precision, against a quadrature over norms, and against draws."""

import re

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

import kernattn as ka
from covering import turns
from kernattn import errors
from kernattn.projections import NORM_LAWS

CHI, SQRT_D = NORM_LAWS["chi"], NORM_LAWS["sqrt_d"]

CASES = [("chi", 1), ("chi", 2), ("sqrt_d", 1), ("sqrt_d", 2)]
T2 = np.concatenate([np.geomspace(1e-6, 1e4, 11), [2.0, 30.0, 300.0, 2.4e3, 5e3, 7e3]])


def exact(name, rows, d, t2, tilt=0.0):
    """The moment in mpmath's arithmetic, from the formulas."""
    t2, tilt, half = mpmath.mpf(t2), mpmath.mpf(tilt), mpmath.mpf(d) / 2
    options = {"maxprec": 10**5, "maxterms": 10**6, "zeroprec": 300}
    if name == "sqrt_d":
        return mpmath.exp(tilt * rows * d) * mpmath.hyp0f1(half, rows * d * t2 / 4, **options)
    x = t2 / (2 * (1 - 2 * tilt))
    if rows == 1:
        series = mpmath.exp(x)
    elif x < 0:  # Kummer
        series = mpmath.exp(x) * mpmath.hyp1f1(half - rows * half, half, -x, **options)
    else:
        series = mpmath.hyp1f1(rows * half, half, x, **options)
    return (1 - 2 * tilt) ** (-rows * half) * series


# ---- against high precision ----


@pytest.mark.parametrize("d", [1, 2, 3, 16, 65, 512])
@pytest.mark.parametrize(("name", "rows"), CASES)
def test_positive_arguments(name, rows, d):
    law = NORM_LAWS[name]
    wanted = [exact(name, rows, d, t2) for t2 in T2]
    logs = np.array([float(mpmath.log(value)) for value in wanted])
    np.testing.assert_allclose(law.log_moment(d, T2, rows=rows), logs, rtol=2e-14, atol=1e-15)
    finite = logs < 700
    values = np.array([float(value) for value, keep in zip(wanted, finite, strict=True) if keep])
    np.testing.assert_allclose(law.moment(d, T2[finite], rows=rows), values, rtol=2e-12)
    small = T2 <= 30
    np.testing.assert_allclose(law.moment(d, T2[small], rows=rows), values[small[finite]], rtol=3e-14)


@pytest.mark.parametrize("d", [1, 2, 3, 16, 65, 512])
@pytest.mark.parametrize(("name", "rows"), CASES)
def test_negative_arguments(name, rows, d):
    wanted = [float(exact(name, rows, d, -t2)) for t2 in T2]
    np.testing.assert_allclose(NORM_LAWS[name].moment(d, -T2, rows=rows), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("tilt", [-3.0, -0.2, 0.1, 0.4])
@pytest.mark.parametrize(("name", "rows"), CASES)
def test_tilt(name, rows, tilt):
    law, t2 = NORM_LAWS[name], np.array([1e-3, 0.5, 4.0, 60.0])
    for d in (1, 7, 64):
        plus = [float(exact(name, rows, d, value, tilt)) for value in t2]
        minus = [float(exact(name, rows, d, -value, tilt)) for value in t2]
        logs = [float(mpmath.log(exact(name, rows, d, value, tilt))) for value in t2]
        np.testing.assert_allclose(law.moment(d, t2, tilt=tilt, rows=rows), plus, rtol=1e-12)
        np.testing.assert_allclose(law.log_moment(d, t2, tilt=tilt, rows=rows), logs, rtol=1e-13, atol=1e-13)
        largest = float(exact(name, rows, d, 0.0, tilt))
        np.testing.assert_allclose(law.moment(d, -t2, tilt=tilt, rows=rows), minus, rtol=0, atol=1e-12 * largest)


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_huge_arguments(name, rows):
    """Where the asymptotic series takes over."""
    for d in (1, 3, 7, 8, 15, 31):
        t2 = np.array([1.5e3, 3e3, 2e4, 1e7, 1e12])
        wanted = [float(exact(name, rows, d, -value)) for value in t2]
        atol = 1e-14 if name == "chi" else 1e-8  # a cosine of s is only as right as s
        np.testing.assert_allclose(NORM_LAWS[name].moment(d, -t2, rows=rows), wanted, rtol=0, atol=atol)
    for d in (1, 2, 5, 64, 512):
        t2 = np.array([1e4, 2.6e5, 2.8e5, 1e7, 1e10, 1e14])
        wanted = [float(mpmath.log(exact(name, rows, d, value))) for value in t2]
        np.testing.assert_allclose(NORM_LAWS[name].log_moment(d, t2, rows=rows), wanted, rtol=2e-14)


@pytest.mark.parametrize("d", [1024, 4097])
def test_thousands_of_dimensions(d):
    """Past where Gamma(d / 2) and J_(d/2 - 1) leave the range of float64."""
    t2 = np.array([0.1, 5.0, 40.0, 300.0])
    for name, rows in CASES:
        wanted = [float(exact(name, rows, d, -value)) for value in t2]
        np.testing.assert_allclose(NORM_LAWS[name].moment(d, -t2, rows=rows), wanted, rtol=0, atol=1e-14)
        logs = [float(mpmath.log(exact(name, rows, d, value))) for value in t2]
        np.testing.assert_allclose(NORM_LAWS[name].log_moment(d, t2, rows=rows), logs, rtol=2e-14)


# ---- laws ----


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_at_zero_and_at_infinity(name, rows):
    law = NORM_LAWS[name]
    for d in (1, 4, 64, 1000):
        assert law.moment(d, 0.0, rows=rows) == 1.0
        assert law.log_moment(d, 0.0, rows=rows) == 0.0
        assert law.moment(d, -0.0, rows=rows) == 1.0
    assert law.moment(4, 1e12, rows=rows) == np.inf
    for d in (1, 2, 3, 4, 64, 512):
        assert np.isfinite(law.log_moment(d, [1e5, 1e6, 1e7, 1e9, 1e18], rows=rows)).all()
        largest = 1.0 if d == 1 and name == "sqrt_d" else 0.03
        assert (np.abs(law.moment(d, [-1e6, -1e9, -1e12], rows=rows)) <= largest).all()
    for bad in (np.nan, np.inf):
        got = law.moment(4, [bad, 1.0, -bad], rows=rows)
        np.testing.assert_array_equal(np.isnan(got), [True, False, True])
        np.testing.assert_array_equal(np.isnan(law.log_moment(4, [bad, 1.0], rows=rows)), [True, False])


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_shapes(name, rows):
    law, t2 = NORM_LAWS[name], np.random.default_rng(0).uniform(0, 50, (2, 3, 4))
    for moment, signed in ((law.moment, t2 * [1, -1, 1, -1]), (law.log_moment, t2)):
        got = moment(9, signed, rows=rows)
        assert got.shape == t2.shape
        assert got.dtype == np.float64
        one_by_one = [moment(9, value, rows=rows) for value in signed.flat]
        np.testing.assert_allclose(got.ravel(), one_by_one, rtol=1e-13)
        assert moment(9, 1.0, rows=rows).shape == ()
        assert moment(9, np.ones((0, 2)), rows=rows).shape == (0, 2)
        assert moment(9, [1, 2], rows=rows).shape == (2,)


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_moment_is_the_exponential_of_its_logarithm(name, rows):
    law, t2 = NORM_LAWS[name], np.linspace(0, 200, 41)
    for d in (1, 8, 64):
        log = law.log_moment(d, t2, tilt=-0.3, rows=rows)
        np.testing.assert_allclose(law.moment(d, t2, tilt=-0.3, rows=rows), np.exp(log), rtol=1e-12)
        assert (np.diff(log) > 0).all()
        assert (np.diff(log, 2) < 1e-9).all() or d == 1 or name == "chi"
        assert (np.abs(law.moment(d, -t2, rows=rows)) <= 1.0).all()


@pytest.mark.parametrize("name", NORM_LAWS)
def test_one_dimension_in_elementary_functions(name):
    z = np.linspace(0.0, 20.0, 81)
    if name == "sqrt_d":
        np.testing.assert_allclose(SQRT_D.moment(1, -(z**2)), np.cos(z), rtol=0, atol=2e-14)
        np.testing.assert_allclose(SQRT_D.moment(1, z**2), np.cosh(z), rtol=1e-13)
        return
    wanted = 1 - np.sqrt(2) * z * special.dawsn(z / np.sqrt(2))
    np.testing.assert_allclose(CHI.moment(1, -(z**2), rows=2), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("t2", "rows"), turns([-6.0, -0.5, 0.7, 5.0], [1, 2, 3]))
def test_chi_is_the_average_over_norms(t2, rows):
    """E over rho^2 ~ chi2(rows d), by quadrature of SciPy's 0F1."""
    d, tilt = 5, 0.1

    def integrand(square):
        return stats.chi2(rows * d).pdf(square) * np.exp(tilt * square) * special.hyp0f1(d / 2, t2 * square / 4)

    wanted, _ = integrate.quad(integrand, 0.0, 400.0, limit=200, epsabs=1e-13, epsrel=1e-12)
    np.testing.assert_allclose(CHI.moment(d, t2, tilt=tilt, rows=rows), wanted, rtol=1e-9, atol=1e-11)


def test_sqrt_d_nears_chi_in_high_dimension():
    t2 = np.linspace(-4.0, 4.0, 9)
    gaps = [np.max(np.abs(SQRT_D.moment(d, t2) / CHI.moment(d, t2) - 1)) for d in (16, 64, 256, 1024)]
    np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 4.0, rtol=0.3)


# ---- against draws ----


@pytest.mark.statistical
@pytest.mark.parametrize("tilt", [0.0, -0.15, 0.05])
@pytest.mark.parametrize(("name", "rows"), CASES)
def test_moments_are_those_of_the_features(name, rows, tilt):
    """Averages of e^(a |omega|^2) cos and exp, and of their products over two orthogonal rows."""
    d, blocks, s = 4, 15_000, np.array([0.5, -0.4, 0.3, 0.1])
    omega = ka.projections.Orthogonal(norms=name).draw(d * blocks, d, 3).reshape(blocks, d, d)[:, :rows]
    weight = np.exp(tilt * np.sum(omega**2, axis=-1))
    for features, t2 in ((np.cos(omega @ s), -(s @ s)), (np.exp(omega @ s), s @ s)):
        samples = np.prod(weight * features, axis=-1)
        z = (samples.mean() - NORM_LAWS[name].moment(d, t2, tilt=tilt, rows=rows)) / samples.std() * np.sqrt(blocks)
        assert abs(z) < 4.5


@pytest.mark.statistical
@pytest.mark.parametrize("name", NORM_LAWS)
def test_samples(name):
    norms = NORM_LAWS[name].sample(20_000, 6, np.random.default_rng(0))
    assert norms.shape == (20_000,)
    assert norms.dtype == np.float64
    if name == "sqrt_d":
        np.testing.assert_array_equal(norms, np.sqrt(6))
    else:
        assert stats.kstest(norms, stats.chi(6).cdf).pvalue > 1e-5


# ---- refusals ----


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize("name", NORM_LAWS)
def test_arguments(name):
    law = NORM_LAWS[name]
    for call in (law.moment, law.log_moment):
        with refused("d must be a positive integer", "0"):
            call(0, 1.0)
        with refused("rows must be a positive integer", "1.0"):
            call(4, 1.0, rows=1.0)
        with refused("tilt must be a finite number", "nan"):
            call(4, 1.0, tilt=np.nan)
    with refused("t2 must not be negative", "-0.5"):
        law.log_moment(4, [1.0, -0.5, np.nan])


@pytest.mark.parametrize("tilt", [0.5, 0.7])
def test_infinite_expectations(tilt):
    for call in (CHI.moment, CHI.log_moment):
        with refused("tilt must be below 1/2", str(tilt)):
            call(4, 1.0, tilt=tilt)
