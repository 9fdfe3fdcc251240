"""Intervals that ask nothing of a law: against SciPy, and by what they cover."""

import numpy as np
import pytest
from scipy import stats

from kernattn.metrics import median_and_ci, proportion_and_ci, quantile_and_ci


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [36, 64, 101])
def test_quantile_interval_is_the_shortest_that_covers(probability, count, confidence):
    x = np.random.default_rng(count).permutation(count).astype(float)
    value, low, high = quantile_and_ci(x, probability, confidence=confidence)
    assert value == pytest.approx(np.quantile(x, probability))
    law, beside = stats.binom(count, probability), (1 - confidence) / 2
    assert law.cdf(low) <= beside < law.cdf(low + 1)  # low is rank j - 1
    assert law.sf(high) <= beside < law.sf(high - 1)


def test_the_median_is_one_of_them():
    x = np.random.default_rng(0).standard_normal((20, 3))
    for confidence in (0.5, 0.95):
        wanted = np.asarray(quantile_and_ci(x, 0.5, confidence=confidence))
        np.testing.assert_array_equal(np.asarray(median_and_ci(x, confidence=confidence)), wanted)


@pytest.mark.statistical
def test_quantile_intervals_cover_under_a_law_without_mean():
    draws = np.random.default_rng(1).standard_cauchy((64, 4000))
    _, low, high = quantile_and_ci(draws, 0.9)
    covered = np.mean((low <= stats.cauchy.ppf(0.9)) & (stats.cauchy.ppf(0.9) <= high))
    law, n = stats.binom(64, 0.9), np.arange(65)
    j, k = int(np.sum(law.cdf(n) <= 0.025)), int(np.sum(law.sf(n) > 0.025)) + 1
    nominal = law.cdf(k - 1) - law.cdf(j - 1)
    assert nominal >= 0.95
    assert abs(covered - nominal) < 4.5 * np.sqrt(nominal * (1 - nominal) / 4000)


def test_proportion_is_clopper_pearson():
    hits = np.array([0, 1, 7, 19, 20])
    found = proportion_and_ci(hits, 20, confidence=0.9)
    for h, value, low, high in zip(hits, *found, strict=True):
        expected = stats.binomtest(int(h), 20).proportion_ci(0.9, method="exact")
        assert value == h / 20
        np.testing.assert_allclose([low, high], expected, rtol=1e-10)
    assert proportion_and_ci(0, 100).high == pytest.approx(1 - 0.025**0.01)
