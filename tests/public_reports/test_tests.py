"""Tests of two samples and of independence."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka

S = ka.solvers
PHI = ka.random_features(ka.kernels.Gaussian(), 2, 32, rng=0)


def rows(n, seed, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((n, 2))


def moments(x, y=None):
    return S.moments(x, PHI, y=None if y is None else PHI(y))


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(50, id="jeanfeydy/geomloss#24"),
        pytest.param(100, id="jeanfeydy/geomloss#25"),
        pytest.param(200, id="thuml/DAN#3"),  # between equal samples, too
    ],
)
def test_estimates_below_zero_are_no_finding(n):
    """The unbiased estimate of a distance between samples can be negative: equal samples are at -2 tr C / n."""
    x = rows(n, 0)
    found = S.mmd(moments(x), moments(x))
    features = PHI(x)
    assert_allclose(found.statistic, -2 * np.trace(np.cov(features.T)) / n, rtol=1e-9)
    assert found.p_value > 0.999


def test_the_estimate_of_dependence_may_be_negative():
    """clovaai/rebias#8: the unbiased estimate of HSIC was negative, which is no fault: nothing is found."""
    found = [S.hsic(moments(rows(60, seed), rows(60, seed + 100))) for seed in range(20)]
    negative = [each for each in found if each.statistic < 0]
    assert negative
    assert min(each.p_value for each in negative) > 0.1


@pytest.mark.statistical
def test_p_values_of_independent_samples_are_uniform():
    """FenTechSolutions/CausalDiscoveryToolbox#58: a statistic was returned where a p-value was expected."""
    values = [S.hsic(moments(rows(80, seed), rows(80, seed + 1000))).p_value for seed in range(200)]
    assert abs(np.mean(np.array(values) < 0.2) - 0.2) < 4.5 * (0.2 * 0.8 / 200) ** 0.5


def test_a_large_statistic_speaks_against_independence():
    """amber0309/HSIC#4: it was not clear on which side of the threshold variables depend on each other."""
    x = rows(200, 0)
    dependent, independent = S.hsic(moments(x, x**2)), S.hsic(moments(x, rows(200, 1)))
    assert dependent.statistic > independent.statistic
    assert dependent.p_value < 1e-6 < independent.p_value


def test_a_narrower_law_is_not_nearer():
    """jeanfeydy/geomloss#36: a sample of less variance came out nearer to the target than one of its own law."""
    target = moments(rows(1000, 0))
    own, narrow = (S.mmd(target, moments(rows(1000, 1, scale))) for scale in (1.0, 0.5))
    assert narrow.statistic > max(own.statistic, 0.01)
    assert narrow.p_value < 1e-6 < own.p_value
