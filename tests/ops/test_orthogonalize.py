"""Orthonormal rows: the laws of A = L Q with a positive diagonal of L, on every backend and by both methods."""

import re
from importlib.util import find_spec

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.linalg import hilbert

import kernattn as ka
import oracles
from kernattn import errors
from kernattn.ops.orthogonalize import OP
from laws import arrays
from xp import backends, dtype_name, numpy_dtype, to_numpy

METHODS = ("gram_schmidt", "qr")
BACKENDS = [backend.name for backend in backends("orthogonalize") if backend.name != "gpu"]
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}


@pytest.fixture(params=[(m, b) for m in METHODS for b in BACKENDS], ids="-".join)
def orthogonalize(request):
    """Each method on each backend."""
    method, backend = request.param
    return lambda blocks: ka.projections.orthogonalize(blocks, method, backend=backend)


def normals(seed, *shape, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(shape).astype(numpy_dtype(dtype))


def turned(x):
    return np.swapaxes(x, -1, -2)


def assert_orthonormal(q, eps):
    q = q.astype(np.float64)
    gram = q @ turned(q)
    r, d = q.shape[-2:]
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(r), gram.shape), rtol=0, atol=4 * eps * np.sqrt(d))


def condition(a):
    """Of rows of length 1: their lengths do not matter."""
    a = a.astype(np.float64)
    return np.linalg.cond(a / np.linalg.norm(a, axis=-1, keepdims=True)).max()


def assert_factor(a, q, eps):
    """A = L Q, L lower triangular with a positive diagonal."""
    a, q = a.astype(np.float64), q.astype(np.float64)
    factor = a @ turned(q)
    size = np.linalg.norm(a, axis=-1, keepdims=True)
    tolerance = 4 * eps * np.sqrt(a.shape[-1]) * size
    assert (np.abs(np.triu(factor, 1)) <= tolerance).all()
    assert (np.abs(factor @ q - a) <= tolerance).all()
    assert (np.diagonal(factor, axis1=-2, axis2=-1) > 0).all()


# ---- against the definition ----


@given(
    lead=st.lists(st.integers(1, 3), max_size=2),
    d=st.integers(1, 40),
    shorter=st.integers(0, 39),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    seed=st.integers(0, 2**32),
)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_against_the_oracle(method, backend, lead, d, shorter, dtype, seed):
    a = normals(seed, *lead, max(1, d - shorter), d, dtype=dtype)
    q = ka.projections.orthogonalize(a, method, backend=backend)
    assert q.shape == a.shape
    assert q.dtype == a.dtype
    eps = EPS[dtype]
    inner = min(eps, EPS["float32"])
    tolerance = 4 * eps + 8 * np.sqrt(d) * inner * condition(a)
    np.testing.assert_allclose(q.astype("f8"), oracles.frames(a.astype("f8")), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 1, 1), (2, 8, 8), (2, 9, 17), (64, 64), (1, 100, 130), (200, 200)], ids=str)
def test_the_laws_that_define_it(orthogonalize, shape, dtype):
    a = normals(1, *shape, dtype=dtype)
    q = orthogonalize(a)
    assert_orthonormal(q, EPS[dtype])
    assert_factor(a, q, EPS[dtype])


ILL_CONDITIONED = {
    "Hilbert 8, float64": hilbert(8),
    "Hilbert 5, float32": hilbert(5).astype("f4"),
    "Laeuchli": np.concatenate([np.ones((12, 1)), 1e-7 * np.eye(12)], axis=1),
    "close, 1e6": normals(2, 3, 1, 40) + normals(3, 3, 20, 40) / 1e6,
    "close, 1e12": normals(2, 3, 1, 40) + normals(3, 3, 20, 40) / 1e12,
    "close, float32": (normals(2, 3, 1, 40) + normals(3, 3, 20, 40) / 1e4).astype("f4"),
    "graded": np.vander(np.linspace(0.1, 1, 12), 14),
}


@pytest.mark.parametrize("name", ILL_CONDITIONED)
def test_ill_conditioned_rows(orthogonalize, name):
    """Twice is enough."""
    a = ILL_CONDITIONED[name]
    q = orthogonalize(a)
    assert_orthonormal(q, EPS[a.dtype.name])
    assert_factor(a, q, EPS[a.dtype.name])


def test_once_would_not_be_enough():
    a = ILL_CONDITIONED["close, 1e6"][0]
    q = np.zeros_like(a)
    for i, row in enumerate(a):
        rest = row - q[:i].T @ (q[:i] @ row)
        q[i] = rest / np.linalg.norm(rest)
    assert np.abs(q @ q.T - np.eye(20)).max() > 1e-6


# ---- what follows from it ----


def test_invariances(orthogonalize):
    rng = np.random.default_rng(4)
    a = normals(5, 3, 20, 33)
    q = orthogonalize(a)
    close = {"rtol": 0, "atol": 1e-11}
    np.testing.assert_allclose(orthogonalize(q), q, **close)
    np.testing.assert_allclose(orthogonalize(a[:, :7]), q[:, :7], **close)  # leading rows know nothing of later ones
    np.testing.assert_allclose(orthogonalize(a * rng.uniform(0.1, 10, (3, 20, 1))), q, **close)
    np.testing.assert_allclose(
        orthogonalize((np.tril(rng.uniform(-0.1, 0.1, (20, 20)), -1) + np.eye(20)) @ a), q, **close
    )
    turn = np.linalg.qr(rng.standard_normal((33, 33)))[0]
    np.testing.assert_allclose(orthogonalize(a @ turn), q @ turn, **close)
    order = rng.permutation(3)
    np.testing.assert_allclose(orthogonalize(a[order]), q[order], **close)
    np.testing.assert_allclose(orthogonalize(a[1]), q[1], **close)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_of_rows_do_not_matter(orthogonalize, dtype):
    a = normals(6, 4, 10, 12, dtype=dtype)
    q = orthogonalize(a)
    reach = 100 if dtype == "float32" else 900
    for powers in (-reach, reach, np.random.default_rng(7).integers(-reach, reach, (4, 10, 1))):
        np.testing.assert_allclose(orthogonalize(np.ldexp(a, powers)), q, rtol=0, atol=1e3 * EPS[dtype])


@pytest.mark.statistical
def test_frames_of_normals_are_haar(orthogonalize):
    d, blocks = 4, 8000
    q = orthogonalize(normals(8, blocks, d, d))

    def z_score(samples, expected):
        return np.abs((samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(blocks))).max()

    assert z_score(q, 0.0) < 4.5
    assert z_score(q**2, 1 / d) < 4.5
    assert z_score(q**4, 3 / (d * (d + 2))) < 4.5
    assert z_score(q[:, :-1] * q[:, 1:], 0.0) < 4.5
    assert z_score(q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2, (d + 1) / (d * (d - 1) * (d + 2))) < 4.5
    assert z_score(np.linalg.det(q), 0.0) < 4.5
    assert z_score(np.trace(q, axis1=-2, axis2=-1) ** 2, 1.0) < 4.5


# ---- rows that depend on each other, and what is not finite ----


def test_rows_of_which_nothing_is_left(orthogonalize):
    a = normals(9, 5, 12, 20)
    whole = orthogonalize(a)
    a[0, 0] = 0.0
    a[1, 11] = 0.0
    a[2, 9] = 0.0
    q = orthogonalize(a)
    for block, first in enumerate((0, 11, 9, 12, 12)):
        np.testing.assert_allclose(q[block, :first], whole[block, :first], rtol=0, atol=1e-12)
        assert np.isnan(q[block, first:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [2, 3, 8, 20])
def test_rows_are_orthonormal_or_nan(orthogonalize, d, dtype):
    """Rows that repeat or sum others, exactly or nearly: rounding decides, never for rows that are not orthogonal."""
    rng = np.random.default_rng(d)
    a = rng.integers(-3, 4, (300, d, d)).astype(dtype)
    a[:100, -1] = a[:100, 0]
    a[100:200, -1] = a[100:200, :-1].sum(axis=1)
    a[200:, -1] = a[200:, 0] * (1 + EPS[dtype] * rng.integers(-4, 5, (100, d)))
    q = orthogonalize(a).astype(np.float64)
    there = ~np.isnan(q).any(axis=-1)
    assert (np.isnan(q).all(axis=-1) == ~there).all()
    assert (np.diff(there.astype(int), axis=-1) <= 0).all()  # NaN to the end
    gram = np.nan_to_num(q) @ turned(np.nan_to_num(q))
    wanted = there[:, :, None] * np.eye(d)
    np.testing.assert_allclose(gram, wanted, rtol=0, atol=16 * EPS[dtype] * np.sqrt(d))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_block(orthogonalize, value):
    a = normals(10, 3, 9, 11)
    whole = orthogonalize(a)
    a[1, 4, 5] = value
    with np.errstate(invalid="ignore"):
        q = orthogonalize(a)
    np.testing.assert_allclose(q[[0, 2]], whole[[0, 2]], rtol=0, atol=1e-13)
    assert np.isnan(q[1, 4:]).all()


# ---- arrays ----


@pytest.mark.parametrize("method", METHODS)
def test_kinds_of_array(xp, method):
    (a,) = arrays(11, (2, 3, 5), dtype="float64")
    with xp.wide():
        for dtype in xp.dtypes:
            given = xp.asarray(a, dtype)
            for backend in (None, "reference"):
                run = (
                    xp.whole if backend else lambda function: function
                )  # compiled loops take arrays of JAX as they are
                q = run(lambda x, backend=backend: ka.projections.orthogonalize(x, method, backend=backend))(given)
                assert xp.holds(q)
                assert dtype_name(q) == dtype
                assert_orthonormal(to_numpy(q), 2 * EPS[dtype])
            np.testing.assert_array_equal(to_numpy(given), to_numpy(xp.asarray(a, dtype)))


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.parametrize("method", METHODS)
def test_it_can_be_traced(method):
    import jax

    a = normals(12, 2, 2, 3, dtype="float32")
    q = jax.jit(lambda x: ka.projections.orthogonalize(x, method))(a)
    assert_orthonormal(np.asarray(q), EPS["float32"])


def test_strides(orthogonalize):
    a = normals(13, 4, 6, 9)
    wanted = orthogonalize(a)
    spread = np.zeros((4, 12, 27))
    spread[:, ::2, ::3] = a
    for view in (spread[:, ::2, ::3], np.asfortranarray(a), a[:, ::-1][:, ::-1], np.broadcast_to(a, (2, *a.shape))):
        q = orthogonalize(view)
        np.testing.assert_allclose(q, np.broadcast_to(wanted, q.shape), rtol=0, atol=1e-13)
    frozen = a.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(orthogonalize(frozen), wanted)


@pytest.mark.skipif("cpu" not in BACKENDS, reason="Numba is not installed")
def test_threads_change_nothing(monkeypatch):
    a = normals(14, 40, 64, 64)
    found = []
    for count in ("1", "3"):
        monkeypatch.setenv("KERNATTN_NUM_THREADS", count)
        found.append(ka.projections.orthogonalize(a, "gram_schmidt", backend="cpu"))
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0][::-1], ka.projections.orthogonalize(a[::-1], "gram_schmidt", backend="cpu"))


def test_the_fastest_backend_is_chosen():
    a = normals(15, 2, 3, 3)
    assert OP.choose(a) == ("cpu" if "cpu" in BACKENDS else "reference")
    q = ka.projections.orthogonalize(a, "gram_schmidt")
    np.testing.assert_array_equal(q, OP.implementation(a, BACKENDS[-1])(a, "gram_schmidt"))


def test_blocks_without_rows():
    """What a projection hands over that has no whole block, or no cut one."""
    for method in METHODS:
        for backend in BACKENDS:
            for shape in ((0, 4, 4), (0, 4)):
                assert OP.implementation(np.zeros(shape), backend)(np.zeros(shape), method).shape == shape


# ---- refusals ----


def refused(error, *words):
    return pytest.raises(error, match=".*".join(re.escape(word) for word in words))


def test_refusals():
    orthogonalize, a = ka.projections.orthogonalize, np.ones((2, 3, 4))
    with refused(errors.DTypeError, "blocks must be an array", "list"):
        orthogonalize([[1.0]])
    with refused(errors.DTypeError, "blocks must have one of the dtypes", "int64"):
        orthogonalize(a.astype(np.int64))
    with refused(errors.DTypeError, "complex128"):
        orthogonalize(a.astype(complex))
    with refused(errors.ShapeError, "(..., r, d)", "(4,)"):
        orthogonalize(a[0, 0])
    with refused(errors.ShapeError, "r <= d", "(2, 4, 3)"):
        orthogonalize(turned(a))
    for shape in ((0, 3), (2, 0, 3), (0, 2, 3)):
        with refused(errors.EmptyInputError, "must not be empty", str(shape)):
            orthogonalize(np.ones(shape))
    with refused(errors.ParameterError, "method must be one of gram_schmidt, qr", "'svd'"):
        orthogonalize(a, "svd")
    with refused(errors.ParameterError, "backend must be None or one of", "'cuda'"):
        orthogonalize(a, backend="cuda")
    with pytest.raises(errors.BackendUnavailable):
        orthogonalize(a, backend="gpu")
