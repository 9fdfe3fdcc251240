"""Rounding, overflow, and memory that is laid out otherwise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kernattn as ka
from public_reports import dense

RNG = np.random.default_rng(0)
K = ka.kernels


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def test_close_rows_in_float32():
    """scikit-learn/scikit-learn#9354: squared distances of close rows in float32 were rounding alone."""
    a = np.array([[61.221637725830078125, 71.60662841796875, -65.7512664794921875]], np.float32)
    b = np.array([[61.221637725830078125, 71.60894012451171875, -65.72847747802734375]], np.float32)
    exact = dense.gaussian(a.astype(np.float64), b.astype(np.float64), 0.02)
    assert_allclose(K.Gaussian(0.02)(a, b), exact, rtol=1e-3)


def test_distances_of_many_rows_in_float32():
    """scikit-learn/scikit-learn#13905: blocks of float32 rows had distances of 0 and wild ones."""
    x = 50 + normal(100, 2000)
    exact = dense.gaussian(x.astype(np.float64), x.astype(np.float64), 40.0)
    assert_allclose(K.Gaussian(40.0)(x), exact, rtol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_at_distance_zero_of_itself(dtype):
    """scikit-learn/scikit-learn#343: the distance of a row to itself was 2e-7."""
    x = 10 * normal(30, 5, dtype=dtype)
    for kernel in (K.Gaussian(), K.Laplacian(), K.Matern(2.5)):
        assert_array_equal(np.diagonal(kernel(x)), 1.0)


def test_matern_of_rows_that_are_nearly_equal():
    """GPflow/GPflow#421: the root of a distance below 0 made Matern kernels NaN."""
    x = np.array(
        [
            [31.55437035, 31.55437038, 32.36345678],
            [31.55437037, 31.55437037, 32.36345679],
            [31.55437037, 31.55437037, 32.36345679],
            [28.31802469, 21.84533348, -29.12711068],
            [28.31802469, 21.84533348, -29.12711111],
        ]
    )
    r = np.sqrt(np.sum((x[:, None] - x) ** 2, axis=-1))
    for nu, exact in ((1.5, 1 + 3**0.5 * r), (2.5, 1 + 5**0.5 * r + 5 * r**2 / 3)):
        assert_allclose(K.Matern(nu)(x), exact * np.exp(-((2 * nu) ** 0.5) * r), atol=1e-7)


def test_lengthscales_that_are_integers():
    """getkeops/keops#370: a lengthscale of 5 gave numbers, 5.0 gave NaN."""
    x = normal(20, 1000)
    exact = np.exp(-np.sum(np.abs(x[:, None].astype(np.float64) - x), axis=-1) / 5)
    for lengthscale in (5, 5.0):
        assert_allclose(K.Laplacian(lengthscale)(x), exact, rtol=1e-3, atol=1e-30)


def test_powers_of_negative_products():
    """getkeops/keops#112: the square of a negative product was NaN."""
    x, y = np.array([[-1.0], [1.0]]), np.array([[1.0], [1.0]])
    assert_array_equal(K.Polynomial(2)(x, y) @ np.ones(2), [2.0, 2.0])
    assert_array_equal(K.Polynomial(3)(x, y) @ np.ones(2), [-2.0, 2.0])


@pytest.mark.parametrize(
    ("dtype", "size", "atol"),
    [
        pytest.param(np.float32, 151.29, 2e-4, id="pytorch/executorch#18407"),  # exp of a score overflowed
        pytest.param(np.float32, 1e5, 2e-4, id="mila-iqia/blocks#727"),
        pytest.param(np.float16, 7e4, 5e-3, id="pytorch/pytorch#119131"),  # a score above the largest half
        pytest.param(np.float16, 300.0, 5e-3, id="huggingface/transformers#17437"),
        pytest.param(np.float16, 20.0, 5e-3, id="huggingface/transformers#18057"),
    ],
)
def test_large_scores(dtype, size, atol):
    q, k, v = (normal(6, 8, dtype=np.float64) for _ in range(3))
    root = (size / np.max(np.abs(q @ k.T)) * 8**0.5) ** 0.5
    q, k, v = (x.astype(dtype) for x in (root * q, root * k, v))
    assert_allclose(ka.softmax_attention(q, k, v), dense.softmax_attention(q, k, v), atol=atol)


def test_exact_attention_is_exact():
    """facebookresearch/xformers#677: float32 attention of 256 equal queries and keys was off by 1.4."""
    q = normal(16, 256, 64)
    assert_allclose(ka.softmax_attention(q, q, q), dense.softmax_attention(q, q, q), atol=1e-5)


@pytest.mark.parametrize(
    "laid_out",
    [
        pytest.param(
            lambda x: np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2), id="pytorch/pytorch#112577"
        ),
        pytest.param(lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1], id="pytorch/pytorch#187504"),
        pytest.param(lambda x: np.repeat(x, 2, axis=1)[:, ::2], id="torch-spyre/torch-spyre#4331"),
    ],
)
def test_views_give_what_copies_give(laid_out):
    q, k, v = normal(4, 9, 8), normal(4, 9, 8), normal(4, 9, 8)
    views = [laid_out(x) for x in (q, k, v)]
    assert not any(x.flags.c_contiguous for x in views)
    elu1 = ka.features.elu1()
    assert_allclose(ka.softmax_attention(*views), ka.softmax_attention(q, k, v), atol=1e-6)
    assert_allclose(ka.linear_attention(*views, elu1), ka.linear_attention(q, k, v, elu1), atol=1e-6)
