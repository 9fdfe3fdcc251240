"""Estimates and intervals against their definitions, closed forms and SciPy."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import kernattn as ka
from kernattn.errors import ShapeError
from kernattn.metrics import (
    bias_and_ci,
    empirical_variance,
    mean_and_ci,
    median_and_ci,
    ratio_delta_method,
    variance_ratio,
)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_mean_and_ci_is_students(confidence):
    x = np.random.default_rng(0).standard_normal((7, 3))
    value, low, high = mean_and_ci(x, confidence=confidence)
    expected = stats.t.interval(confidence, 6, loc=x.mean(axis=0), scale=stats.sem(x, axis=0))
    np.testing.assert_allclose([low, high], expected, rtol=1e-12)
    np.testing.assert_allclose(value, x.mean(axis=0))


@pytest.mark.statistical
@pytest.mark.parametrize(("interval", "law"), [(mean_and_ci, "standard_normal"), (median_and_ci, "standard_cauchy")])
def test_intervals_cover(interval, law):
    draws = getattr(np.random.default_rng(1), law)((20, 4000))
    _, low, high = interval(draws)
    covered = np.mean((low <= 0) & (high >= 0))
    nominal = 0.95 if interval is mean_and_ci else 1 - 2 * stats.binom.cdf(5, 20, 0.5)
    assert abs(covered - nominal) < 4.5 * np.sqrt(nominal * (1 - nominal) / 4000)


@pytest.mark.parametrize("count", range(6, 40))
def test_median_interval_is_the_shortest_that_covers(count):
    x = np.random.default_rng(count).permutation(count).astype(float)
    value, low, high = median_and_ci(x)
    assert value == np.median(x)
    assert low + high == count - 1  # ranks j - 1 and R - j
    assert 1 - 2 * stats.binom.cdf(low, count, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(low + 1, count, 0.5) < 0.95


def test_median_needs_six():
    with pytest.raises(ShapeError, match="5 samples give the median no interval"):
        median_and_ci(np.zeros(5))


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_bias_is_the_mean_of_the_error(confidence):
    estimates, exact = np.random.default_rng(2).standard_normal((9, 4, 5)), np.arange(5.0)
    found = bias_and_ci(estimates, exact, confidence=confidence)
    for a, b in zip(found, mean_and_ci(estimates - exact, confidence=confidence), strict=True):
        np.testing.assert_array_equal(a, b)


def test_variance_ratio_has_the_confidence_that_is_asked_for():
    estimates, predicted = np.random.default_rng(3).standard_normal((9, 5)), np.arange(1.0, 6.0)
    scores = np.mean((estimates - estimates.mean(axis=0)) ** 2 / predicted, axis=1) * 9 / 8
    for confidence in (0.5, 0.99):
        found = variance_ratio(estimates, predicted, confidence=confidence)
        np.testing.assert_allclose(found, mean_and_ci(scores, confidence=confidence), rtol=1e-12)


def test_empirical_variance():
    x = np.random.default_rng(3).standard_normal((6, 2, 3))
    np.testing.assert_allclose(empirical_variance(x), np.var(x, axis=0, ddof=1))


@pytest.mark.statistical
def test_variance_ratio_of_known_variances():
    sigma = np.geomspace(1e-6, 1e6, 50)
    draws = sigma * np.random.default_rng(4).standard_normal((30, 50))
    ratio = variance_ratio(draws, sigma**2)
    assert abs(ratio.value - 1) < 4.5 * np.sqrt(2 / (29 * 50))
    np.testing.assert_allclose(ratio.value, np.mean(np.var(draws, axis=0, ddof=1) / sigma**2), rtol=1e-12)
    assert ratio.low < ratio.value < ratio.high


def test_variance_ratio_scales():
    draws = np.random.default_rng(5).standard_normal((8, 6))
    once, twice = variance_ratio(draws, np.ones(6)), variance_ratio(draws, 2 * np.ones(6))
    np.testing.assert_allclose(np.asarray(once), 2 * np.asarray(twice), rtol=1e-12)


@pytest.mark.statistical
def test_delta_method_predicts_small_noise():
    """N = a + s x, Z = b + s (r x + sqrt(1 - r^2) y): moments of N/Z to second order in s."""
    a, b, s, r, draws = 2.0, 1.0, 0.05, 0.3, 400_000
    x, y = np.random.default_rng(10).standard_normal((2, draws))
    n, z = a + s * x, b + s * (r * x + np.sqrt(1 - r * r) * y)
    found = ratio_delta_method(n[:, None], z)
    bias, variance = a * s**2 / b**3 - r * s**2 / b**2, s**2 * (1 - 2 * r * a / b + (a / b) ** 2) / b**2
    np.testing.assert_allclose(found.bias, [bias], rtol=0.03)
    np.testing.assert_allclose(found.variance, [variance], rtol=0.02)
    np.testing.assert_allclose(found.relative_sd, s / b, rtol=0.02)
    ratio = n / z
    next_order = 8 * s**4  # the expansion's own error
    assert abs(ratio.mean() - a / b - bias) < 4.5 * np.sqrt(variance / draws) + 3 * next_order
    assert abs(ratio.var() - variance) < 4.5 * variance * np.sqrt(2 / draws) + 10 * next_order


def test_a_confidence_may_be_a_fraction():
    samples = np.random.default_rng(0).standard_normal(20)
    assert ka.metrics.mean_and_ci(samples, confidence=Fraction(1, 2)) == ka.metrics.mean_and_ci(samples, confidence=0.5)
