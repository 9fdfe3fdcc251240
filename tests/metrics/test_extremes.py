"""Metrics at the ends of the floats: no warning, no NaN, and the numbers of ordinary sizes times a power of two."""

import numpy as np
import pytest

import kernattn as ka
from xp import to_numpy

M = ka.metrics
RNG = np.random.default_rng(0)
X, Y, Z = RNG.standard_normal((3, 8, 4, 3))
GRAMS = X[:2] @ np.swapaxes(X[:2], 1, 2)
POSITIVE = np.abs(X[..., 0]) + 1
CALLS = {  # name: (call of arrays and their size, the powers of the size that its numbers are)
    "mean_and_ci": (lambda xp, s: M.mean_and_ci(xp(X * s)), 1),
    "median_and_ci": (lambda xp, s: M.median_and_ci(xp(X * s)), 1),
    "bias_and_ci": (lambda xp, s: M.bias_and_ci(xp(X * s), xp(Y[0] * s)), 1),
    "empirical_variance": (lambda xp, s: [M.empirical_variance(xp(X * s))], 2),
    "variance_ratio": (lambda xp, s: M.variance_ratio(xp(X * s), xp(np.ones((4, 3)))), 2),
    "attention_mse": (lambda xp, s: [M.attention_mse(xp(X * s), xp(Y * s))], 2),
    "ratio_delta_method": (lambda xp, s: M.ratio_delta_method(xp(X * s), xp(POSITIVE * s)), 0),
    "gram_errors": (lambda xp, s: M.gram_errors(xp(X[0] * s), xp(Y[0] * s))[2:], 0),
    "spectral": (lambda xp, s: [M.spectral_delta(xp(GRAMS[0] * s), xp(GRAMS[1] * s), 0.5 * s)], 0),
    "gram_errors, squared": (lambda xp, s: M.gram_errors(xp(X[0] * s), xp(Y[0] * s))[:1], 2),
}
SIZES = {"float32": [2.0**-140, 2.0**-70, 2.0**50, 2.0**70, 2.0**124], "float64": [2.0**-1060, 2.0**600, 2.0**1020]}


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_sizes_come_out_as_factors(name, dtype, xp):
    if xp.name == "jax" and dtype == "float64":
        pytest.skip("JAX compiles for each call: float32 has the narrower range")
    with xp.wide():
        compare(*CALLS[name], dtype, xp)


def compare(call, power, dtype, xp):
    """Compare what a call gives of arrays of every size with what it gives of ordinary ones."""
    wanted = [to_numpy(part) for part in call(lambda a: xp.asarray(a, dtype), 1.0)]
    for size in SIZES[dtype]:
        tiny, largest = np.finfo(dtype).tiny, float(np.finfo(dtype).max)
        for found, ordinary in zip(call(lambda a: xp.asarray(a, dtype), size), wanted, strict=True):
            values = to_numpy(found)
            assert not np.isnan(values).any(), size
            with np.errstate(over="ignore", under="ignore"):
                scaled = np.ldexp(ordinary, int(np.log2(size)) * power)
            if size >= tiny:
                np.testing.assert_allclose(
                    np.clip(values, -largest, largest), np.clip(scaled, -largest, largest), rtol=1e-4, atol=tiny
                )


COLUMNS = {  # calls of arrays whose last axis but one is columns
    "mean_and_ci": lambda a, b: M.mean_and_ci(a),
    "bias_and_ci": M.bias_and_ci,
    "empirical_variance": lambda a, b: [M.empirical_variance(a)],
    "attention_mse": lambda a, b: [M.attention_mse(np.moveaxis(a, 1, 0), b[:, None, None])],
    "ratio_delta_method": lambda a, b: M.ratio_delta_method(a[..., None], a),
}


@pytest.mark.parametrize("size", [2.0**-120, 2.0**120])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_do_not_see_each_other(name, size):
    call, a, b = COLUMNS[name], X[..., 0].astype("f4"), Y[0, :, 0].astype("f4")
    if name == "attention_mse":
        a = X.astype("f4")
    scale = np.array([1, 1, 1, size], "f4")
    scaled = a * scale if a.ndim == 2 else a * scale[:, None]
    for found, alone in zip(call(scaled, b * scale), call(a, b), strict=True):
        np.testing.assert_allclose(found[:3], alone[:3], rtol=1e-5, atol=1e-6)
    for found, alone in zip(call(scaled, b * scale), call(scaled[:, 3:], (b * scale)[3:]), strict=True):
        np.testing.assert_allclose(found[3:], alone, rtol=1e-5, atol=1e-6 * size)


def test_a_ratio_gives_columns_of_every_size_one_weight():
    scale = np.array([2.0**400, 1.0, 2.0**-400])
    found = M.variance_ratio(X[..., 0, None] * scale, np.broadcast_to(scale, (4, 3)) ** 2)
    np.testing.assert_allclose(found, M.variance_ratio(X[..., 0], np.ones(4)), rtol=1e-12)


def test_no_prediction_from_moments_beyond_the_floats():
    phi = ka.random_features(ka.kernels.Softmax(), 3, 16, "positive", "iid", rng=0)
    with pytest.raises(ka.errors.ParameterError, match="their largest numbers are"):
        M.attention_delta_method(np.full((1, 3), 1e37), np.ones((2, 3)), np.ones((2, 1)), phi)


def test_weights_that_all_but_vanish():
    p, q = np.array([[0.5, 0.5]], np.float32), np.array([[1.0, 1e-45]], np.float32)
    np.testing.assert_allclose(M.attention_kl(q, p), 0.5 * np.log(0.5) + 0.5 * np.log(0.5 / 1.4e-45), rtol=1e-3)


def test_a_normaliser_of_mean_zero_predicts_nothing():
    found = M.ratio_delta_method(np.ones((2, 1)), np.array([1.0, -1.0]))
    assert all(np.isposinf(part).all() for part in found)


@pytest.mark.parametrize("number", [np.float64(5e-324), np.float32(1e-45), np.float32(3e38)])
def test_the_median_of_equal_numbers(number):
    assert M.median_and_ci(np.full(6, number)) == (number, number, number)
