"""Count sketches against their definition, on every backend, dense and CSR."""

import numpy as np
import pytest
from scipy import sparse

from kernattn.ops.countsketch import OP
from kernattn.ops.countsketch.reference import countsketch as reference
from laws import arrays
from xp import dtype_name, to_numpy

BACKENDS = [name for name in OP.backends if OP.choose(np.ones(1), None) == name or name == "reference"]


def hashes(copies, dim, buckets, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(buckets, size=(copies, dim)), rng.standard_normal((copies, dim))


def by_definition(x, index, weight, buckets):
    out = np.zeros((len(x), len(index), buckets))
    for r, i, j in np.ndindex(len(x), *index.shape):
        out[r, i, index[i, j]] += weight[i, j] * x[r, j]
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n", "d", "copies", "buckets"), [(1, 1, 1, 1), (5, 3, 2, 1), (7, 40, 3, 16), (300, 11, 2, 5)])
def test_against_the_definition(n, d, copies, buckets, backend, dtype):
    (x,) = arrays(1, (n, d), dtype=dtype)
    index, weight = hashes(copies, d, buckets)
    sketch = OP.implementation(x, backend)
    expected = by_definition(x, index, weight, buckets)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    got = sketch(x, index, weight, buckets, None)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    out = np.full_like(got, np.nan)
    assert sketch(x, index, weight, buckets, out) is out
    np.testing.assert_array_equal(out, got)
    rows = np.where(np.abs(x) > 0.7, x, 0)
    for index_type in (np.int32, np.int64):
        csr = sparse.csr_array(rows)
        csr.indices, csr.indptr = csr.indices.astype(index_type), csr.indptr.astype(index_type)
        got = sketch(csr, index, weight, buckets, None)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, by_definition(rows, index, weight, buckets), rtol=tolerance, atol=tolerance)


def test_leading_axes_and_kinds(xp):
    (x,) = arrays(2, (2, 3, 6))
    index, weight = hashes(2, 6, 4)
    expected = by_definition(x.reshape(6, 6), index, weight, 4).reshape(2, 3, 2, 4)
    for backend in (None, "reference"):
        got = OP.implementation(xp.asarray(x), backend)(xp.asarray(x), index, weight, 4, None)
        assert dtype_name(got) == "float32"
        np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_narrow_and_strided_rows(backend):
    (x,) = arrays(3, (6, 9))
    index, weight = hashes(2, 9, 4)
    sketch = OP.implementation(x, backend)
    half = x.astype(np.float16)
    got = sketch(half, index, weight, 4, None)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, reference(half.astype(np.float32), index, weight, 4), rtol=1e-5, atol=1e-5)
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    np.testing.assert_allclose(sketch(wide, index, weight, 4, None), sketch(x, index, weight, 4, None))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite_stays_in_its_row(backend):
    (x,) = arrays(4, (4, 5))
    x[1, 2] = np.nan
    index, weight = hashes(1, 5, 3)
    got = OP.implementation(x, backend)(x, index, weight, 3, None)
    assert np.isnan(got[1]).any()
    assert np.isfinite(got[[0, 2, 3]]).all()
