"""Products of kernel matrices against the matrix, and against float64, for every kernel and on every path."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ShapeError
from kernattn.ops.dispatch import missing
from kernattn.ops.pairwise_product import OP, cpu
from kernels.test_families import FAMILIES
from ops.test_pairwise import FORMS, formula
from xp import KINDS, backends, dtype_name, to_numpy

K = ka.kernels
NUMBA = pytest.mark.skipif(missing("cpu") is not None, reason="no Numba")
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
COMPILED = {
    "gaussian": K.Gaussian(1.3),
    "laplacian": K.Laplacian(4.0),
    "matern-1/2": K.Matern(0.5, 2.0),
    "matern-3/2": K.Matern(1.5, 2.0),
    "matern-5/2": K.Matern(2.5, 2.0),
    "polynomial": K.Polynomial(3, 0.1, 1.0),
    "softmax": K.Softmax(),
}


def rows(seed, *shape, dtype="f8", scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def oracle(kernel, x, y, v):
    """K v and what its rounding is measured by: sums of |K| |v|, from pairs in float64."""
    x, y, v = (a.astype("f8") for a in (x, y, v))
    matrix = kernel.pairs(x[:, None, :], y[None, :, :])
    return matrix @ v, np.abs(matrix) @ np.abs(v)


@pytest.mark.parametrize("backend", backends("pairwise_product"), ids=repr)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("n", "k", "d", "c"), [(1, 1, 1, 1), (9, 33, 7, 3), (67, 600, 17, 5), (530, 70, 20, 40)])
def test_formula(backend, name, n, k, d, c):
    x, y, v = rows(0, n, d, scale=d**-0.5), rows(1, k, d, scale=d**-0.5), rows(2, k, c)
    product, form = OP.implementation(x, backend.name), FORMS[name]
    matrix = formula(x, y, form)
    np.testing.assert_allclose(product(x, y, v, form), matrix @ v, rtol=0, atol=1e-13 * (np.abs(matrix) @ abs(v)).max())


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("c", [None, 1, 9])
def test_every_kernel(name, dtype, c, monkeypatch):
    monkeypatch.setattr("kernattn.kernels._pairwise.COLUMNS", 32)
    monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", 32 * 10)
    kernel = FAMILIES[name][0]
    x, y = (np.abs(rows(i, m, 4, dtype=dtype)) + np.asarray(0.01, dtype) for i, m in ((3, 45), (4, 70)))
    v = rows(5, *((70,) if c is None else (70, c)), dtype=dtype)
    found = kernel.matmul(x, y, v)
    wanted, size = oracle(kernel, x, y, v)
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    rtol = 2e-5 if dtype == "float32" else 3e-8 if name.startswith("arccosine") else 1e-12
    np.testing.assert_array_less(np.abs(found - wanted), rtol * size)
    own, matrix = kernel.matmul(y, None, v), kernel(y)
    np.testing.assert_allclose(own, matrix @ v, rtol=0, atol=40 * EPS[dtype] * np.max(np.abs(matrix) @ np.abs(v)))


@NUMBA
@pytest.mark.parametrize("number", ["1", "3"])
@pytest.mark.parametrize(("n", "d", "c"), [(1030, 3, 1), (513, 20, 3), (1600, 18, 17)])
def test_the_symmetric_product_is_the_full_one(number, n, d, c, monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", number)
    kernel = K.Gaussian(d**0.5)
    x, v = rows(6, n, d), rows(7, n, c)
    half, full = kernel.matmul(x, None, v), kernel.matmul(x, x.copy(), v)
    np.testing.assert_allclose(half, full, rtol=0, atol=1e-13 * np.abs(v).sum())
    np.testing.assert_allclose(half, oracle(kernel, x, x, v)[0], rtol=0, atol=1e-13 * np.abs(v).sum())


@NUMBA
def test_every_two_panels_meet_once_and_none_is_in_two_jobs_of_a_round():
    for n in (1, 512, 513, 1025, 2600):
        met = []
        for jobs in cpu._rounds(n):
            touched = [each for first, _, begin, _, _ in jobs for each in {first, begin}]
            assert len(touched) == len(set(touched))
            met += [frozenset((first, begin)) for first, _, begin, _, _ in jobs]
        count = -(-n // cpu.SIDE)
        assert len(met) == len(set(met)) == count * (count + 1) // 2


@NUMBA
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_accuracy_is_that_of_the_matrix(name, dtype, offset):
    """Rows near each other, and rows near each other far from the origin: distances must not cancel."""
    kernel, d = COMPILED[name], 24
    offset = 0.0 if name in ("polynomial", "softmax") else offset
    x = rows(8, 30, d, scale=0.2) + offset
    x = np.concatenate([x, x[:15] + rows(9, 15, d, scale=1e-3)]).astype(dtype)
    v = np.ones((45, 1), dtype)
    wanted, size = oracle(kernel, x, x, v)
    by_matrix = np.abs(kernel(x) @ v - wanted)
    for found in (kernel.matmul(x, None, v), kernel.matmul(x, x.copy(), v)):
        np.testing.assert_array_less(np.abs(found - wanted), by_matrix.max() + 20 * EPS[dtype] * size)


@NUMBA
def test_large_norms_are_met_by_differences():
    x = rows(10, 40, 32, dtype="f4", scale=30.0)
    y = x + rows(11, 40, 32, dtype="f4", scale=0.05)
    v = np.ones((40, 1), "f4")
    wanted, _ = oracle(K.Gaussian(), x, y, v)
    np.testing.assert_allclose(K.Gaussian().matmul(x, y, v), wanted, rtol=2e-5)


@NUMBA
def test_a_row_that_is_nan_spoils_itself_alone():
    x, y, v = rows(12, 40, 20), rows(13, 70, 20), rows(14, 70, 9)
    kernel = K.Matern(1.5, 5.0)
    clean = kernel.matmul(x, y, v)
    x[7, 3] = np.nan
    found = kernel.matmul(x, y, v)
    assert np.isnan(found[7]).all()
    np.testing.assert_allclose(np.delete(found, 7, 0), np.delete(clean, 7, 0), rtol=1e-12)


def test_far_rows_are_taken_as_the_matrix_takes_them():
    x, v = rows(15, 12, 3), rows(16, 12, 2)
    x[3] *= 1e200
    np.testing.assert_allclose(K.Gaussian().matmul(x, None, v), K.Gaussian()(x) @ v, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    x, v = rows(17, 9, 3, dtype="f4"), rows(18, 9, 2, dtype="f4")
    for kernel in (K.Gaussian(), K.Cauchy(), 2.0 * K.Gaussian() + K.ArcCosine(1)):
        with kind.wide():
            found = kind.whole(lambda x, v, k=kernel: k.matmul(x, None, v))(kind.asarray(x), kind.asarray(v))
            assert kind.holds(found)
            assert dtype_name(found) == "float32"
            np.testing.assert_allclose(to_numpy(found), kernel(x) @ v, rtol=1e-4, atol=1e-4)


def test_errors():
    x, v, kernel = rows(19, 5, 3), rows(20, 5), K.Gaussian()
    with pytest.raises(ShapeError, match=r"v must be \(5,\) or \(5, c\)"):
        kernel.matmul(x, None, v[:4])
    with pytest.raises(ShapeError, match=r"x and y must be"):
        kernel.matmul(x[None], None, v)
    with pytest.raises(EmptyInputError, match="v must have no empty axis"):
        kernel.matmul(x, None, v[:, None][:, :0])
    with pytest.raises(DTypeError, match="x and v must have one dtype"):
        kernel.matmul(x, None, v.astype("f4"))
    with pytest.raises((MixedLibraryError, DTypeError)):
        kernel.matmul(x, None, v.tolist())
