"""Tensor sketches against a transform of count sketches in float64, on every backend, dense and CSR."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse

from covering import turns
from kernattn.ops.tensor_sketch import OP
from laws import arrays
from xp import dtype_name, to_numpy

BACKENDS = [name for name in OP.backends if OP.choose(np.ones(1), None) == name or name == "reference"]


def hashes(copies, dim, buckets, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(buckets, size=(copies, dim)), rng.standard_normal((copies, dim))


def frequencies(buckets):
    """1 ... (M - 1) // 2; where M is a power of two, by their digits in base 8, the least significant ones first."""
    listed = np.arange(1, (buckets + 1) // 2)
    if buckets & (buckets - 1):
        return listed
    last = max((bits for bits in range(0, 60, 3) if 8 ** (bits // 3) * 16 < buckets // 2), default=-3) + 3
    digits = [listed // 8**i % 8 for i in range(last // 3)] + [listed // 2**last]
    return listed[np.lexsort(digits[::-1])]


def oracle(x, index, weight, buckets):
    """[P_0, P_(M/2) where M is even, sqrt 2 Re P_f, sqrt 2 Im P_f, ...] / sqrt M by sums over the columns."""
    turn = np.exp(-2j * np.pi * np.arange(buckets)[:, None] * np.arange(buckets) / buckets)
    spectrum = np.ones((len(x), buckets), complex)
    for h, w in zip(index, weight, strict=True):
        spectrum *= (x.astype(np.float64) * w) @ turn[h]
    out = [spectrum[:, 0].real] if buckets % 2 else [spectrum[:, 0].real, spectrum[:, buckets // 2].real]
    for f in frequencies(buckets):
        out += [np.sqrt(2) * spectrum[:, f].real, np.sqrt(2) * spectrum[:, f].imag]
    return np.stack(out, axis=1) / np.sqrt(buckets)


@pytest.mark.parametrize(
    ("buckets", "backend", "dtype"),
    turns([1, 2, 3, 4, 8, 12, 16, 32, 64, 128, 256, 512, 1024], product(BACKENDS, ["float32", "float64"])),
)
def test_against_the_oracle(buckets, backend, dtype):
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for n, d, copies in ((1, 1, 1), (37, 9, 2), (16, 5, 3), (70, 33, 1), (9, 80, 2)):
        (x,) = arrays(1, (n, d), dtype=dtype)
        index, weight = hashes(copies, d, buckets)
        sketch = OP.implementation(x, backend)
        got, expected = sketch(x, index, weight, buckets), oracle(x, index, weight, buckets)
        assert got.dtype == dtype
        size = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, atol=tolerance * size)
        rows = np.where(np.abs(x) > 0.5, x, 0)
        got = sketch(sparse.csr_array(rows), index, weight, buckets)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, oracle(rows, index, weight, buckets), atol=tolerance * size)


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
@pytest.mark.parametrize("buckets", [1024, 2048])
def test_many_rows_of_few_columns(buckets, copies):
    """Two passes of the transform at once; how many rows there are decides, not how threads share them."""
    (x,) = arrays(4, (300, 5), dtype="float64")
    index, weight = hashes(copies, 5, buckets)
    sketch, expected = OP.implementation(x), oracle(x, index, weight, buckets)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13)):
        got = sketch(x.astype(dtype), index, weight, buckets)
        np.testing.assert_allclose(got, expected, atol=tolerance * np.abs(expected).max())


def test_leading_axes_kinds_and_dtypes(xp):
    (x,) = arrays(2, (2, 3, 6))
    index, weight = hashes(2, 6, 16)
    for dtype in xp.dtypes:
        with xp.wide():
            given = xp.asarray(x, dtype)
            expected = oracle(to_numpy(given).reshape(6, 6), index, weight, 16).reshape(2, 3, 16)
            for backend in (None, "reference"):
                sketch = OP.implementation(given, backend)
                run = (
                    xp.whole if backend else lambda function: function
                )  # compiled loops take arrays of JAX as they are
                got = run(lambda x, sketch=sketch: sketch(x, index, weight, 16))(given)
                assert xp.holds(got)
                assert dtype_name(got) == ("float64" if dtype == "float64" else "float32")
                np.testing.assert_allclose(to_numpy(got), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_do_not_mix(backend):
    (x,) = arrays(3, (50, 7))
    index, weight = hashes(3, 7, 32)
    sketch = OP.implementation(x, backend)
    whole = sketch(x, index, weight, 32)
    x[11, 2], x[40, 0] = np.nan, np.inf
    with np.errstate(invalid="ignore"):  # infinity times 0 in a product
        spoilt = sketch(x, index, weight, 32)
    clean = np.setdiff1d(np.arange(50), [11, 40])
    np.testing.assert_array_equal(spoilt[clean], whole[clean])
    assert np.isnan(spoilt[11]).any()
    np.testing.assert_allclose(sketch(x[20:33], index, weight, 32), whole[20:33], rtol=1e-5, atol=1e-5)
    wide = np.repeat(x, 2, axis=1)[:, ::2]  # strided
    np.testing.assert_array_equal(sketch(wide[:11], index, weight, 32), whole[:11])
