"""Exact kernels against a float64 oracle, over kinds of array, dtypes and shapes."""

import re

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from xp import NUMPY, dtype_name, to_numpy

LENGTHSCALES = (0.7, 1.0, 1.5, 3.0)
KERNELS = {
    "gaussian": (ka.kernels.Gaussian(), lambda x, y: np.exp(-0.5 * np.sum((x - y) ** 2))),
    "gaussian-scaled": (ka.kernels.Gaussian(lengthscale=2), lambda x, y: np.exp(-np.sum((x - y) ** 2) / 8)),
    "gaussian-ard": (
        ka.kernels.Gaussian(lengthscale=np.array(LENGTHSCALES)),
        lambda x, y: np.exp(-0.5 * np.sum(((x - y) / LENGTHSCALES) ** 2)),
    ),
    "softmax": (ka.kernels.Softmax(), lambda x, y: np.exp(np.sum(x * y) / np.sqrt(len(x)))),
    "softmax-scaled": (ka.kernels.Softmax(scale=0.3), lambda x, y: np.exp(0.3 * np.sum(x * y))),
}
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-51}


@pytest.fixture(params=KERNELS)
def case(request):
    return KERNELS[request.param]


def rows(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def rowwise(oracle, x, y):
    x, y = np.broadcast_arrays(x, y)
    values = [oracle(a, b) for a, b in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1]), strict=True)]
    return np.reshape(values, x.shape[:-1])


def close(got, wanted, dtype):
    """To rounding of the result (subnormal in float16), and of an exponent of size up to 20."""
    rtol, atol = EPS[dtype] + 20 * min(EPS[dtype], EPS["float32"]), 2.0**-24 if dtype == "float16" else 0.0
    np.testing.assert_allclose(to_numpy(got), wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_values_kind_and_dtype(case, xp, dtype):
    if dtype not in xp.dtypes:
        pytest.skip(f"{xp} has no {dtype}")
    kernel, oracle = case
    with xp.wide():
        x, y = xp.asarray(rows(0, 2, 3, 5, 4), dtype), xp.asarray(rows(1, 3, 6, 4), dtype)
        x64, y64 = to_numpy(x), to_numpy(y)
        matrix, pairs = kernel(x, y), kernel.pairs(x, y[:, :5, :])
        own, diagonal = kernel(x), kernel.diag(x)
    for result in (matrix, pairs, own, diagonal):
        assert xp.holds(result)
        assert dtype_name(result) == dtype
    close(matrix, rowwise(oracle, x64[..., :, None, :], y64[..., None, :, :]), dtype)
    close(pairs, rowwise(oracle, x64, y64[:, :5]), dtype)
    close(own, rowwise(oracle, x64[..., :, None, :], x64[..., None, :, :]), dtype)
    close(diagonal, rowwise(oracle, x64, x64), dtype)
    np.testing.assert_array_equal(np.diagonal(to_numpy(own), axis1=-2, axis2=-1), to_numpy(diagonal))


def test_one_pair_is_an_array(case, xp):
    kernel, oracle = case
    x, y = xp.asarray(rows(2, 4), "float32"), xp.asarray(rows(3, 4), "float32")
    result = kernel.pairs(x, y)
    assert xp.holds(result)
    assert result.shape == ()
    close(result, oracle(to_numpy(x), to_numpy(y)), "float32")


def test_symmetry_and_swap(case):
    kernel, _ = case
    x, y = rows(4, 6, 4), rows(5, 7, 4)
    np.testing.assert_allclose(kernel(x), kernel(x).T, rtol=1e-14)
    np.testing.assert_allclose(kernel(x, y), kernel(y, x).T, rtol=1e-14)
    assert np.linalg.eigvalsh(kernel(x)).min() > -1e-12


def test_input_scale_is_the_kernel(case):
    """k(x, y) = k'(c x, c y), k' the kernel of scale 1."""
    kernel, _ = case
    x, y, c = rows(6, 5, 4), rows(7, 6, 4), kernel.input_scale(4)
    assert c.shape == (4,)
    assert c.dtype == np.float64
    plain = ka.kernels.Gaussian() if isinstance(kernel, ka.kernels.Gaussian) else ka.kernels.Softmax(scale=1.0)
    np.testing.assert_allclose(kernel(x, y), plain(c * x, c * y), rtol=1e-13)
    np.testing.assert_allclose(kernel.input_scale(4), 1.0 if kernel == plain else c)


def test_softmax_scale_follows_the_dimension():
    for d in (1, 7, 64):
        np.testing.assert_allclose(ka.kernels.Softmax().input_scale(d) ** 2, d**-0.5, rtol=1e-15)


def test_gaussian_diagonal_is_one_and_nothing_is_above(xp):
    base = rows(8, 40, 4) * 50
    x = xp.asarray(np.concatenate([base, base * (1 + 1e-7)]), "float32")
    matrix = to_numpy(ka.kernels.Gaussian()(x))
    np.testing.assert_array_equal(np.diagonal(matrix), 1.0)
    assert matrix.max() <= 1.0
    np.testing.assert_array_equal(to_numpy(ka.kernels.Gaussian().diag(x)), 1.0)


def test_rows_far_from_the_origin_keep_their_digits(xp):
    """The distance of an expanded square would be all rounding here."""
    x = xp.asarray(rows(9, 20, 4) + 2000, "float32")
    exact = to_numpy(x)
    wanted = rowwise(KERNELS["gaussian"][1], exact[:, None, :], exact[None, :, :])
    np.testing.assert_allclose(to_numpy(ka.kernels.Gaussian()(x)), wanted, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_row_stays_its_own(case, bad):
    kernel, _ = case
    x = rows(10, 5, 4)
    x[2, 1] = bad
    good = [0, 1, 3, 4]
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = kernel(x)
    np.testing.assert_allclose(matrix[np.ix_(good, good)], kernel(x[good]), rtol=1e-13)
    assert not np.isfinite(matrix[2, 2]) or bad == np.inf


def test_jax_traces(case):
    jax = pytest.importorskip("jax")
    kernel, _ = case
    x = rows(11, 5, 4).astype(np.float32)
    np.testing.assert_allclose(jax.jit(kernel)(x), kernel(x), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(kernel.pairs)(x, x[::-1]), kernel.pairs(x, x[::-1]), rtol=1e-5)


def test_torch_differentiates(case):
    torch = pytest.importorskip("torch")
    kernel, _ = case
    x = torch.tensor(rows(12, 5, 4), requires_grad=True)
    y = torch.tensor(rows(13, 3, 4))
    assert torch.autograd.gradcheck(lambda x: kernel(x, y), x)
    assert torch.autograd.gradcheck(kernel, x)


# ---- values ----


def test_kernels_are_values():
    lengthscale = np.array([1.0, 2.0])
    kernel = ka.kernels.Gaussian(lengthscale)
    lengthscale[:] = 5.0
    assert kernel == ka.kernels.Gaussian([1, 2]) == ka.kernels.Gaussian(lengthscale=(1.0, 2.0))
    assert hash(kernel) == hash(ka.kernels.Gaussian([1, 2]))
    assert kernel != ka.kernels.Gaussian(1.0) != ka.kernels.Softmax()
    assert repr(kernel) == "Gaussian(lengthscale=(1.0, 2.0))"
    assert repr(ka.kernels.Softmax()) == "Softmax(scale=None)"
    with pytest.raises(AttributeError):
        kernel.lengthscale = 2.0
    kernel.input_scale(2)[:] = 0.0
    np.testing.assert_array_equal(kernel.input_scale(2), [1.0, 0.5])


def test_the_table_names_them():
    assert ka.kernels.KERNELS["gaussian"] is ka.kernels.Gaussian
    assert ka.kernels.KERNELS["softmax"] is ka.kernels.Softmax


# ---- refusals ----


def refused(error, *words):
    return pytest.raises(error, match=".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize(
    "lengthscale",
    [
        0,
        -1.0,
        np.nan,
        np.inf,
        True,
        None,
        "1",
        1j,
        [],
        [1.0, 0.0],
        [[1.0]],
        [1.0, [2.0]],
        [1.0, np.nan],
        np.array([True]),
    ],
    ids=repr,
)
def test_lengthscales(lengthscale):
    told = "an array bool(1,)" if isinstance(lengthscale, np.ndarray) else repr(lengthscale)
    with refused(errors.ParameterError, "lengthscale must be a positive finite number", "got", told):
        ka.kernels.Gaussian(lengthscale)


@pytest.mark.parametrize("scale", [0, -1.0, np.nan, np.inf, True, "1", [1.0]], ids=repr)
def test_scales(scale):
    with refused(errors.ParameterError, "scale must be a", "got", repr(scale)):
        ka.kernels.Softmax(scale)


def test_lengthscales_of_another_dimension():
    kernel = ka.kernels.Gaussian([1.0, 2.0, 3.0])
    with refused(errors.ShapeError, "3 entries", "d = 4"):
        kernel(rows(0, 5, 4))
    with refused(errors.ParameterError, "d must be a positive integer", "0"):
        ka.kernels.Softmax().input_scale(0)


def test_shapes(case):
    kernel, _ = case
    with refused(errors.ShapeError, "x must be (..., n, d)", "(4,)"):
        kernel(rows(0, 4))
    with refused(errors.ShapeError, "y must be (..., n, d)", "(4,)"):
        kernel(rows(0, 5, 4), rows(0, 4))
    with refused(errors.ShapeError, "x must be (..., d)", "()"):
        kernel.pairs(np.ones(()), rows(0, 4))
    with refused(errors.ShapeError, "x must be (..., n, d)"):
        kernel.diag(rows(0, 4))
    with refused(errors.ShapeError, "last axis", "(5, 4)", "(5, 3)"):
        kernel(rows(0, 5, 4), rows(0, 5, 3))
    with refused(errors.ShapeError, "broadcast", "(2, 5, 4)", "(3, 5, 4)"):
        kernel(rows(0, 2, 5, 4), rows(0, 3, 5, 4))
    with refused(errors.ShapeError, "broadcast", "(5, 4)", "(6, 4)"):
        kernel.pairs(rows(0, 5, 4), rows(0, 6, 4))
    for shape in ((0, 4), (5, 0), (0, 5, 4)):
        with refused(errors.EmptyInputError, "x", str(shape)):
            kernel(np.ones(shape))


def test_dtypes_and_libraries(case):
    kernel, _ = case
    with refused(errors.DTypeError, "x", "float32", "int64"):
        kernel(np.ones((5, 4), np.int64))
    with refused(errors.DTypeError, "complex128"):
        kernel(np.ones((5, 4), np.complex128))
    with refused(errors.DTypeError, "one dtype", "float64", "float32"):
        kernel(rows(0, 5, 4), rows(0, 5, 4).astype(np.float32))
    with refused(errors.DTypeError, "list"):
        kernel([[1.0, 2.0]])
    strict = pytest.importorskip("array_api_strict")
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        kernel(NUMPY.asarray(rows(0, 5, 4)), strict.asarray(rows(0, 5, 4)))
    with refused(errors.MixedLibraryError, "one device", "CPU_DEVICE", "device1"):
        kernel(strict.asarray(rows(0, 5, 4)), strict.asarray(rows(0, 5, 4), device=strict.Device("device1")))
