"""Elementary functions in the compiled loops, to a unit in the last place."""

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.elementary import (
    change_of_unit,
    cosine,
    decayed,
    exponential,
    log_of,
    octaves,
    power_of_two,
    sine_cosine,
    unit_of,
    weight,
)
from kernattn.ops._numba.codegen.registers import VECTOR, lanes
from kernattn.ops._numba.codegen.vectors import load, some, store, where

DTYPES = ["float32", "float64"]


@compiled
def apply_exponential(x, y, of_vectors):
    for i in range(0, x.size, lanes(x)):
        store(exponential(load(x, i)), of_vectors, i)
    for i in range(x.size):
        y[i] = exponential(x[i])


@compiled
def apply_decayed(x, y):
    for i in range(x.size):
        y[i] = decayed(x[i])


@compiled
def apply_power_of_two(x, y):
    for i in range(0, x.size, lanes(x)):
        store(power_of_two(load(x, i)), y, i)


@compiled
def apply_to_vectors(x, up, down, decays, weights, wholes):
    for i in range(0, x.size, lanes(x)):
        y = load(x, i)
        store(decayed(y), decays, i)
        store(weight(y, load(up, i), load(down, i)), weights, i)
        store(octaves(y), wholes, i)


@compiled
def apply_to_scalars(x, up, down, decays, weights, wholes):
    for i in range(x.size):
        decays[i], weights[i], wholes[i] = decayed(x[i]), weight(x[i], up[i], down[i]), octaves(x[i])


@compiled
def count_above(x, y, larger):
    count = 0
    for i in range(0, x.size, lanes(x)):
        a, b = load(x, i), load(y, i)
        store(where(b > a, b, a), larger, i)
        count += some((a > b) | (b > a))
    return count


@compiled
def apply_weight(x, up, down, y):
    for i in range(x.size):
        y[i] = weight(x[i], up[i], down[i])


@compiled
def apply_change_of_unit(peak, unit, y):
    for i in range(peak.size):
        y[i] = change_of_unit(peak[i], -unit[i], unit.dtype.type(0))


@compiled
def apply_units(x, units, logs):
    for i in range(x.size):
        units[i] = unit_of(x[i])
        logs[i] = log_of(units[i])


@compiled
def apply_cosine(x, y):
    for i in range(x.size):
        y[i] = cosine(x[i])


@compiled
def apply_sine_cosine(x, s, c):
    for i in range(x.size):
        s[i], c[i] = sine_cosine(x[i])


def spread(dtype, low, high):
    return np.random.default_rng(0).uniform(low, high, 20_000).astype(dtype)


def longer(function, x):
    """The function in extended precision; where a machine has none, float64 for float32 only."""
    return function(x.astype(np.longdouble))


def exponentials(x):
    """Of numbers, which are those of vectors."""
    whole = np.resize(x, -(-x.size // 16) * 16)
    y, of_vectors = np.empty_like(whole), np.empty_like(whole)
    apply_exponential(whole, y, of_vectors)
    np.testing.assert_array_equal(y, of_vectors)
    return y[: x.size]


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_within_one_unit(dtype):
    low, high = (-87.3, 88.7) if dtype == "float32" else (-708.3, 709.7)
    x = spread(dtype, low, high)
    error = np.abs(exponentials(x) / longer(np.exp, x) - 1)
    assert error.max() < np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_below_the_normal_numbers(dtype):
    info = np.finfo(dtype)
    x = spread(dtype, np.log(info.tiny) - 40, np.log(info.tiny))
    wanted = longer(np.exp, x)
    assert (np.abs(exponentials(x) - wanted) <= 0.51 * float(info.smallest_subnormal) + info.eps * wanted).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_at_the_ends(dtype):
    x = np.array([-np.inf, -1e30, -800, 0, -0.0, 800, 1e30, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(exponentials(x), np.array([0, 0, 0, 1, 1, np.inf, np.inf, np.inf, np.nan], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_exponential_of_what_is_not_positive(dtype):
    low, info = (-86.9 if dtype == "float32" else -708), np.finfo(dtype)
    x = np.concatenate([spread(dtype, low, 0), np.array([0, -0.0, -1e30, -np.inf, np.nan], dtype)])
    y = np.empty_like(x)
    apply_decayed(x, y)
    assert np.abs(y[:-5] / longer(np.exp, x[:-5]) - 1).max() < info.eps
    np.testing.assert_array_equal(y[-5:], np.array([1, 1, 0, 0, np.nan], dtype))
    x = np.linspace(np.log(info.tiny) - 40, np.log(info.tiny) + 5, 5001).astype(dtype)
    y = np.empty_like(x)
    apply_decayed(x, y)
    assert ((y == 0) | (y >= info.tiny)).all()
    assert y[0] == 0
    assert y[-1] > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_function_of_a_vector_is_that_of_its_elements(dtype):
    x = np.concatenate([spread(dtype, -800, 0), np.array([0, -np.inf, np.nan, -1e30] * 8, dtype)])
    up, down = (np.random.default_rng(i).integers(-100, 100, x.size).astype(dtype) for i in (1, 2))
    whole, parts = ([np.empty_like(x) for _ in range(3)] for _ in range(2))
    apply_to_vectors(x, up, down, *whole)
    apply_to_scalars(x, up, down, *parts)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_between_vectors(dtype):
    width = VECTOR // np.dtype(dtype).itemsize
    x = spread(dtype, -1, 1)[: 64 * width]
    y, larger = x.copy(), np.empty_like(x)
    y[5 * width - 1], y[9 * width] = 2, np.nan
    y[: 2 * width] -= 1
    assert count_above(x, y, larger) == 3
    np.testing.assert_array_equal(larger, np.where(y > x, y, x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_have_the_same_digits_in_every_unit(dtype):
    x = spread(dtype, -50, 50)
    rng = np.random.default_rng(1)
    plain, scaled, zero = np.empty_like(x), np.empty_like(x), np.zeros_like(x)
    apply_weight(x, zero, zero, plain)
    assert np.abs(plain / longer(np.exp, x) - 1).max() < np.finfo(dtype).eps
    for size in (30, 2**20):
        up = rng.integers(-size, size, x.size).astype(dtype)
        apply_weight(x, up, up + int(rng.integers(-20, 20)), scaled)
        np.testing.assert_array_equal(np.frexp(scaled)[0], np.frexp(plain)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_at_the_ends(dtype):
    largest = np.finfo(dtype).max
    x = np.array([0, -np.inf, np.nan, 0, 0, 0, -largest / 2, largest / 2], dtype)
    up = np.array([0, 0, 0, -3, -np.inf, -largest, 0, 0], dtype)
    down = np.array([0, 0, 0, -3, 0, 0, 0, largest], dtype)
    y = np.empty_like(x)
    apply_weight(x, up, down, y)
    np.testing.assert_array_equal(y, np.array([1, 0, np.nan, 1, 0, 0, 0, 0], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_unit_is_found_again_from_its_log(dtype):
    reach = 2**21 if dtype == "float32" else 2**50
    x = spread(dtype, -0.69 * reach, 0.69 * reach)
    units, logs, factors = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    apply_units(x, units, logs)
    assert (units == np.floor(units)).all()
    apply_change_of_unit(logs, units, factors)
    assert (factors == 1).all()
    x = spread(dtype, -50, 50)
    apply_units(x, units, logs)
    apply_change_of_unit(x, units, factors)
    np.testing.assert_allclose(factors, np.exp(x.astype("f8") - units * np.log(2)), rtol=40 * np.finfo(dtype).eps)
    assert factors.min() > 0.999
    assert factors.max() < 2.001


@pytest.mark.parametrize("reach", [1.0, 30.0, 9e4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cosine_and_sine_within_a_unit_of_one(dtype, reach):
    x = spread(dtype, -reach, reach)
    x[:4] = [0, np.pi / 2, -np.pi / 4, 3 * np.pi / 4]
    alone, s, c = (np.empty_like(x) for _ in range(3))
    apply_cosine(x, alone)
    apply_sine_cosine(x, s, c)
    eps = np.finfo(dtype).eps
    assert np.abs(alone - longer(np.cos, x)).max() < 1.2 * eps
    assert np.abs(c - longer(np.cos, x)).max() < eps
    assert np.abs(s - longer(np.sin, x)).max() < eps


def test_powers_of_two_for_weights():
    x = -np.concatenate([np.linspace(0, 124, 100_008), [0, 1, 126, 200, 3e38, np.inf, 0.5, 64]]).astype("f4")
    y = np.empty_like(x)
    apply_power_of_two(x, y)
    wanted = np.exp2(x.astype("f8"))
    normal = wanted >= 2.0**-124
    assert (abs(y[normal] / wanted[normal] - 1) < 2e-7).all()
    assert y[-8] == 1
    np.testing.assert_array_equal(y[np.isin(x, [-200, np.float32(-3e38), -np.inf])], 0)
