"""Rows far from the origin: kernels of a difference err as they do on rows about it, whatever the lengthscale."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.kernels._rows import check_rows
from xp import KINDS, to_numpy

L = (0.7, 3.0, 0.9)
KERNELS = {
    "gaussian": ka.kernels.Gaussian(L),
    "laplacian": ka.kernels.Laplacian(L),
    "exponential": ka.kernels.Matern(0.5, lengthscale=L),
    "matern": ka.kernels.Matern(1.5, lengthscale=L),
    "cauchy": ka.kernels.Cauchy(L),
    "rational": ka.kernels.RationalQuadratic(lengthscale=L),
    "sum": ka.kernels.Gaussian(L) + 2.0 * ka.kernels.Laplacian(0.9),
    "product": ka.kernels.Gaussian(L) * ka.kernels.Cauchy(0.9),
}
OFFSETS = np.array([[1e6, -1e6, 0.0], [3e5, 1e-3, 1e9]])


def rows(seed, n, offset, dtype):
    return (np.random.default_rng(seed).standard_normal((n, 3)) + offset).astype(dtype)


@pytest.mark.parametrize("offset", OFFSETS, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", KERNELS)
def test_far_from_the_origin(name, dtype, offset):
    kernel, eps = KERNELS[name], np.finfo(dtype).eps
    x, y = rows(0, 60, offset, dtype), rows(1, 40, offset, dtype)
    v = np.random.default_rng(2).random((40, 2)).astype(dtype)
    middle = x[0].astype("f8")  # differences with it are exact
    wanted = kernel(x.astype("f8") - middle, y.astype("f8") - middle)
    np.testing.assert_allclose(kernel(x, y), wanted, rtol=0, atol=32 * eps)
    np.testing.assert_allclose(kernel.matmul(x, y, v), wanted @ v, rtol=64 * eps)
    np.testing.assert_allclose(kernel.pairs(x[:40], y), np.diagonal(wanted), rtol=0, atol=32 * eps)
    np.testing.assert_allclose(np.exp(kernel._logs(kernel._rows(x, y, cross=True))), wanted, rtol=0, atol=64 * eps)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_kind_of_array(kind):
    x, y = rows(0, 30, 1e6, "f4"), rows(1, 20, 1e6, "f4")
    kernel, middle = ka.kernels.Cauchy(0.7), x[0].astype("f8")
    found = to_numpy(kernel(kind.asarray(x), kind.asarray(y)))
    np.testing.assert_allclose(found, kernel(x.astype("f8") - middle, y.astype("f8") - middle), atol=4e-6)


def test_rows_are_moved_only_where_that_is_exact():
    y = np.array([[1.0, -3.0, -1.0, 5.0, 1e300, 2.0], [2.0, -2.0, 1.0, 11.0, 1.5e300, np.inf]])
    moved = check_rows(y, y, True).recentre(np.full(6, 0.7))
    assert moved.x is moved.y
    wanted = y - np.array([1.0, -3.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(moved.y, wanted)
    np.testing.assert_array_equal(check_rows(y + 0.0, y, True).recentre(np.full(6, 0.7)).x, wanted)
    for scale, given in ((1.0, y), (0.7, y[:, 2:3])):
        kept = check_rows(given, given, True)
        assert kept.recentre(np.full(given.shape[1], scale)) is kept


def test_kernels_of_a_product_do_not_move():
    x = rows(0, 20, 5.0, "f8")
    np.testing.assert_allclose(ka.kernels.Softmax(0.7)(x), np.exp(0.7 * x @ x.T), rtol=1e-12)
