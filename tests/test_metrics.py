"""Metrics against their definitions, closed forms and SciPy."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import rel_entr

from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ParameterError, ShapeError
from kernattn.metrics import (
    attention_mse,
    bias_and_ci,
    empirical_variance,
    gram_errors,
    mean_and_ci,
    median_and_ci,
    ratio_delta_method,
    row_kl,
    variance_ratio,
)
from xp import to_numpy


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_mean_and_ci_is_students(confidence):
    x = np.random.default_rng(0).standard_normal((7, 3))
    value, low, high = mean_and_ci(x, confidence)
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


def test_bias_is_the_mean_of_the_error():
    estimates, exact = np.random.default_rng(2).standard_normal((9, 4, 5)), np.arange(5.0)
    found = bias_and_ci(estimates, exact)
    for a, b in zip(found, mean_and_ci(estimates - exact), strict=True):
        np.testing.assert_array_equal(a, b)


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


def test_gram_errors_are_the_norms():
    rng = np.random.default_rng(6)
    k, error = rng.standard_normal((5, 4)), 1e-3 * rng.standard_normal((5, 4))
    found = gram_errors(k + error, k)
    np.testing.assert_allclose(found.mse, np.mean(error**2), rtol=1e-9)
    np.testing.assert_allclose(found.max, np.max(np.abs(error)), rtol=1e-9)
    np.testing.assert_allclose(found.frobenius, np.linalg.norm(error) / np.linalg.norm(k), rtol=1e-9)
    np.testing.assert_allclose(found.spectral, np.linalg.norm(error, 2) / np.linalg.norm(k, 2), rtol=1e-9)


def test_gram_errors_do_not_see_rotations():
    rng = np.random.default_rng(7)
    k, estimate = rng.standard_normal((2, 6, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    there, back = gram_errors(estimate, k), gram_errors(turn @ estimate, turn @ k)
    np.testing.assert_allclose([there.frobenius, there.spectral], [back.frobenius, back.spectral], rtol=1e-12)


def test_attention_mse_keeps_leading_axes():
    out, exact = np.random.default_rng(8).standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(attention_mse(out, exact), ((out - exact) ** 2).mean(axis=(1, 2)))
    np.testing.assert_allclose(attention_mse(out, exact[0])[0], attention_mse(out[0], exact[0]))


def test_row_kl():
    rng = np.random.default_rng(9)
    p, q = rng.dirichlet(np.ones(6), size=(2, 4))
    p[0, :2] = 0
    p[0] /= p[0].sum()
    np.testing.assert_allclose(row_kl(p, q), rel_entr(p, q).sum(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(row_kl(p, p), 0, atol=1e-15)
    q[1, 3] = -1e-9
    q[0, 0] = -1.0  # where p is 0
    found = row_kl(p, q)
    assert np.isinf(found[1])
    assert np.all(np.isfinite(found[[0, 2, 3]]))


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


def test_every_kind_of_array(xp):
    rng = np.random.default_rng(11)
    draws, variances = rng.standard_normal((8, 4, 3)), rng.uniform(1, 2, (4, 3))
    weights = rng.dirichlet(np.ones(3), size=(2, 4))
    with xp.wide():
        given = [xp.asarray(x) for x in (draws, variances, *weights)]
        calls = {
            mean_and_ci: (0,),
            median_and_ci: (0,),
            bias_and_ci: (0, 1),
            empirical_variance: (0,),
            variance_ratio: (0, 1),
            attention_mse: (0, 1),
            row_kl: (2, 3),
        }
        for function, places in calls.items():
            found = function(*(given[i] for i in places))
            expected = function(*((draws, variances, *weights)[i] for i in places))
            for a, b in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
                assert xp.holds(a)
                np.testing.assert_allclose(to_numpy(a), b, rtol=1e-12)
        found = ratio_delta_method(given[0], xp.asarray(draws[..., 0] + 5))
        for a, b in zip(found, ratio_delta_method(draws, draws[..., 0] + 5), strict=True):
            np.testing.assert_allclose(to_numpy(a), b, rtol=1e-10)
        assert gram_errors(given[2], given[3]) == pytest.approx(gram_errors(*weights))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mean_and_ci(np.ones((1, 3))), ShapeError, "R >= 2"),
        (lambda: mean_and_ci(np.ones((4, 0))), EmptyInputError, r"\(4, 0\)"),
        (lambda: mean_and_ci(np.ones(4, dtype=int)), DTypeError, "int64"),
        (lambda: mean_and_ci([1.0, 2.0]), DTypeError, "list"),
        (lambda: mean_and_ci(np.ones(4), confidence=1.0), ParameterError, "1.0"),
        (lambda: bias_and_ci(np.ones((4, 3)), np.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: variance_ratio(np.ones((4, 3)), np.ones((1, 3))), ShapeError, r"\(1, 3\)"),
        (lambda: variance_ratio(np.ones((4, 3)), np.asarray([1.0, 0.0, 1.0])), ParameterError, "above 0"),
        (lambda: gram_errors(np.ones((2, 3)), np.ones((3, 2))), ShapeError, r"\(3, 2\)"),
        (lambda: gram_errors(np.ones((2, 2)), np.zeros((2, 2))), ParameterError, "zero"),
        (lambda: attention_mse(np.ones(3), np.ones(3)), ShapeError, r"\(3,\)"),
        (lambda: row_kl(np.ones((2, 3)), np.ones(3)), ShapeError, r"\(2, 3\)"),
        (lambda: ratio_delta_method(np.ones((4, 3)), np.ones((4, 3))), ShapeError, r"\(4, 3\)"),
    ],
)
def test_errors_name_what_was_given(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_libraries_do_not_mix():
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(MixedLibraryError, match="exact"):
        bias_and_ci(np.ones((3, 2)), strict.ones(2))
