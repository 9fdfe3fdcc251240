"""The Tanimoto kernel of bits in every form that they come in, against SciPy; empty rows, scales, and refusals."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import kernattn as ka
from kernattn import errors
from kernattn._arrays.csr import entries_of
from kernattn.ops.dispatch import missing
from kernattn.ops.minmax_csr import OP as MINMAX
from kernattn.ops.shared_bits import OP as SHARED_BITS
from xp import to_numpy

K = ka.kernels
FORMS = [K.Tanimoto(), K.Tanimoto("dot")]
RNG = np.random.default_rng(0)
BITS = RNG.random((40, 70)) < 0.1
BITS[[3, 5]] = False
WEIGHTS = np.where(RNG.random((9, 33)) < 0.5, RNG.random((9, 33)), 0.0)
READ = [
    np.asarray,
    lambda x: x.astype(np.uint8),
    lambda x: x.astype(np.int64),
    lambda x: x.astype(np.float64),
    sparse.csr_array,
    lambda x: sparse.csr_matrix(x.astype(np.uint8)),
    lambda x: sparse.csr_array(x.astype(np.float64)),
]


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@pytest.mark.parametrize("read", READ)
def test_bits_are_those_of_scipy(kernel, read):
    x = read(BITS)
    y, wanted = x[:7], 1 - cdist(BITS, BITS, "jaccard")
    dtype = "float64" if x.dtype == np.float64 else "float32"
    v = RNG.standard_normal((7, 2)).astype(dtype)
    for got, expected in (
        (kernel(x), wanted),
        (kernel(x, y), wanted[:, :7]),
        (kernel.diag(x), np.ones(40)),
        (kernel.pairs(x[:20], x[20:]), np.diag(wanted[:20, 20:])),
        (kernel.matmul(x, y, v), wanted[:, :7].astype(dtype) @ v),
    ):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype == "float64" else 1e-5, atol=1e-7)
    assert kernel(x)[3, 5] == 1
    assert not np.delete(kernel(x)[3], [3, 5]).any()


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
def test_bits_of_every_library(kernel, xp):
    for dtype in ("float32", "uint8"):
        x = xp.asarray(BITS.astype(dtype))
        for got in (kernel(x), kernel(x[None, ...])[0, ...]):
            assert xp.holds(got)
            np.testing.assert_allclose(to_numpy(got), kernel(BITS), atol=1e-6)


@pytest.mark.parametrize("kernel", FORMS, ids=repr)
@pytest.mark.parametrize("octaves", [-1000, -100, 100, 1000])
def test_scale_does_not_count(kernel, octaves):
    scaled = np.ldexp(WEIGHTS, octaves)
    np.testing.assert_allclose(kernel(scaled), kernel(WEIGHTS), rtol=1e-13)
    np.testing.assert_allclose(kernel.pairs(scaled, scaled[::-1]), kernel.pairs(WEIGHTS, WEIGHTS[::-1]), rtol=1e-13)
    np.testing.assert_allclose(kernel(scaled, WEIGHTS), 0, atol=1e-25)  # of lengths that have nothing in common


def test_a_row_of_ordinary_numbers_beside_a_huge_one():
    x = np.concatenate([WEIGHTS, np.full((1, 33), 1e308)])
    for kernel in FORMS:
        np.testing.assert_allclose(kernel(x)[:-1, :-1], kernel(WEIGHTS), rtol=1e-14)
        assert kernel(x)[-1, -1] == 1


def test_negative_numbers_are_for_the_dot_form_alone():
    x = RNG.standard_normal((6, 4))
    products, squares = x @ x.T, np.sum(x**2, axis=1)
    wanted = products / (squares[:, None] + squares - products)
    np.testing.assert_allclose(K.Tanimoto("dot")(x), wanted, rtol=1e-12)
    assert K.Tanimoto("dot").signed > K.Tanimoto().signed
    for bad in (-1.0, np.nan, np.inf):
        for rows in (np.full((2, 3), bad), sparse.csr_array(np.full((2, 3), bad))):
            with pytest.raises(errors.ParameterError, match="y must hold finite numbers that are not negative"):
                K.Tanimoto()(abs(x[:, :3]), rows)
    with pytest.raises(errors.ParameterError, match="form must be"):
        K.Tanimoto("cosine")


def test_algebra_takes_bits_where_all_members_do():
    both = 2 * K.Tanimoto() + K.Tanimoto("dot") * K.Tanimoto()
    np.testing.assert_allclose(both(BITS), both(BITS.astype(np.float32)))
    with pytest.raises(errors.DTypeError, match="bool"):
        (K.Tanimoto() + K.Gaussian())(BITS)


@pytest.mark.parametrize("dim", [1, 63, 64, 65, 200])
def test_bits_in_common_by_words(dim):
    x, y = RNG.random((70, dim)) < 0.5, RNG.random((9, dim)) < 0.5
    np.testing.assert_allclose(K.Tanimoto()(x, y), 1 - cdist(x, y, "jaccard"), rtol=1e-6)
    words = [np.packbits(np.pad(rows, ((0, 0), (0, -dim % 64))), axis=1).view(np.uint64) for rows in (x, y)]
    for backend in SHARED_BITS.backends:
        if missing(backend) is None:
            out = np.empty((70, 9))
            SHARED_BITS.function(backend)(*words, out)
            np.testing.assert_array_equal(out, x.astype(float) @ y.T)


def test_landmarks_of_bits_in_csr():
    csr = sparse.csr_array(BITS.astype(np.float64))
    phi = ka.features.nystrom(csr, K.Tanimoto(), 40, rng=0)
    np.testing.assert_allclose(phi(csr) @ phi(csr).T, K.Tanimoto()(csr), atol=1e-12)


COUNTS = RNG.poisson(0.3, (40, 70)) * RNG.random((40, 70))
SPARSE = {"sets": COUNTS, "bits": BITS, "many bits": RNG.random((40, 70)) < 0.9}
LARGE = np.ldexp(COUNTS, 1000)


def in_pieces(dense):
    """Return CSR rows whose columns are in no order, each number the sum of two, and some zeros stored."""
    rows, columns = np.nonzero(dense + (dense[:, :1] == 0) * (np.arange(dense.shape[1]) == 0))
    pieces = RNG.permutation(2 * len(rows)) % len(rows)
    pieces = pieces[np.argsort(rows[pieces], kind="stable")]
    starts = np.append(0, np.cumsum(np.bincount(rows[pieces], minlength=len(dense))))
    values = dense[rows[pieces], columns[pieces]] / 2
    return sparse.csr_array((values, columns[pieces].astype(np.int64), starts), shape=dense.shape)


@pytest.mark.parametrize(("name", "dtype"), [*product(SPARSE, ["float32", "float64"]), ("large", "float64")])
def test_csr_rows_are_as_dense_ones(name, dtype):
    dense, kernel = np.vstack([np.zeros((1, 70)), SPARSE.get(name, LARGE)]).astype(dtype), K.Tanimoto()
    x = in_pieces(dense)
    stored = x.data.copy()
    wanted, tolerance = kernel(dense.astype("float64")), {"rtol": 4e-7 if dtype == "float32" else 1e-13, "atol": 0}
    np.testing.assert_allclose(kernel(x), wanted, **tolerance)
    np.testing.assert_allclose(kernel(x, x[3:9]), wanted[:, 3:9], **tolerance)
    np.testing.assert_array_equal(kernel(x).diagonal(), 1)
    v = RNG.standard_normal((len(dense), 2)).astype(dtype)
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == "float32" else 1e-12}
    np.testing.assert_allclose(kernel.matmul(x, None, v), wanted @ v, **tolerance)
    np.testing.assert_array_equal(x.data, stored)


def test_csr_rows_that_do_not_fit():
    x = sparse.csr_array(COUNTS)
    with pytest.raises(errors.DTypeError, match="one dtype; got float64 and float32"):
        K.Tanimoto()(x, x.astype(np.float32))
    with pytest.raises(errors.ShapeError, match="agree in their last axis"):
        K.Tanimoto()(x, x[:, :9])
    with pytest.raises(errors.DTypeError, match="x and v must have one dtype"):
        K.Tanimoto().matmul(x, None, np.ones(40, np.float32))


@pytest.mark.parametrize("backend", MINMAX.backends)
def test_minmax_of_entries(backend):
    if missing(backend) is not None:
        pytest.skip(missing(backend))
    x, y = sparse.csr_array(COUNTS), sparse.csr_array(COUNTS[::3, ::-1])
    out = np.empty((x.shape[0], y.shape[0]))
    MINMAX.function(backend)(entries_of(x), entries_of(y.tocsc()), x.sum(axis=1), y.sum(axis=1), out)
    np.testing.assert_allclose(out, K.Tanimoto()(x.toarray(), y.toarray()), rtol=1e-13)
