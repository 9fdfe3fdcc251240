"""Products of tiles, and transposes, in the compiled loops."""

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.registers import ROWS, lanes
from kernattn.ops._numba.tiles.products import FULL, LATER, LOWER, UPPER, product, solve, transpose

DTYPES = ["float32", "float64"]


@compiled
def _multiply(a, a_row, a_inner, b, b_inner, c, c_row, m, n, depth, accumulate, shape):
    product(a, 0, a_row, a_inner, b, 0, b_inner, c, 0, c_row, m, n, depth, accumulate, shape)


def multiply(a, b, c, m, n, depth, accumulate=False, shape=FULL, transposed=False):
    """c (+)= a b; each array has room for whole blocks."""
    steps = (1, a.shape[1]) if transposed else (a.shape[1], 1)
    _multiply(a.ravel(), *steps, b.ravel(), b.shape[1], c.reshape(-1), c.shape[1], m, n, depth, accumulate, shape)


@compiled
def run_transpose(a, a_row, m, n, b, b_row):
    transpose(a, 0, a_row, m, n, b, 0, b_row)


@compiled
def lanes_of(x):
    return lanes(x)


def room(m, n, dtype, value):
    """A flat tile with space for whole blocks."""
    width = lanes_of(np.empty(0, dtype))
    shape = (-(-m // ROWS) * ROWS, -(-n // width) * width)
    return np.full(shape, value, dtype)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 16, 4), (13, 37, 5), (64, 64, 64), (5, 100, 33)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_product(dtype, transposed, shape):
    m, n, inner = shape
    rng = np.random.default_rng(1)
    a, b, c = (room(*size, dtype, 7.0) for size in ((m, inner), (inner, n), (m, n)))
    a[:], b[:], c[:] = rng.standard_normal(a.shape), rng.standard_normal(b.shape), rng.standard_normal(c.shape)
    wanted = a[:m, :inner].astype("f8") @ b[:inner, :n].astype("f8")
    before = c[:m, :n].copy()
    given = np.ascontiguousarray(a.T) if transposed else a
    tolerance = 20 * inner * np.finfo(dtype).eps
    for accumulate in (True, False):
        multiply(given, b, c, m, n, inner, accumulate, transposed=transposed)
        np.testing.assert_allclose(c[:m, :n], wanted + accumulate * before, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_a_product_has_the_same_bits_in_every_block(dtype, accumulate):
    n, inner = 37, 29
    rng = np.random.default_rng(4)
    for m in range(1, 27):
        a, b, c = room(m, inner, dtype, 0), room(inner, n, dtype, 0), room(m, n, dtype, 0)
        a[:], b[:], c[:] = (rng.standard_normal(x.shape) for x in (a, b, c))
        wanted = c.copy()
        for i in range(m):
            row, out = room(1, inner, dtype, 0), room(1, n, dtype, 0)
            row[0], out[0] = a[i], c[i]
            multiply(row, b, out, 1, n, inner, accumulate)
            wanted[i] = out[0]
        multiply(a, b, c, m, n, inner, accumulate)
        np.testing.assert_array_equal(c[:m, :n], wanted[:m, :n])


@pytest.mark.parametrize("shape", [FULL, UPPER, LOWER, LATER])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_stays_in_its_room(dtype, shape):
    for m in range(1, 40):
        tile = room(m, m, dtype, 0)
        framed = np.full((len(tile) + 2, tile.shape[1]), 7, dtype)
        c = framed[1:-1]
        multiply(np.tril(tile + 1), np.ones_like(tile), c, m, m, m, shape=shape)
        assert (framed[[0, -1]] == 7).all(), m


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_products(dtype):
    n, e = 45, 19
    rng = np.random.default_rng(2)
    a, b, c = room(n, n, dtype, 0), room(n, n, dtype, 0), room(n, n, dtype, 0)
    a[:n, :n], b[:n, :n] = rng.standard_normal((2, n, n))
    multiply(a, b, c, n, n, n, shape=UPPER)
    tolerance = 100 * n * np.finfo(dtype).eps
    wanted = a[:n, :n].astype("f8") @ b[:n, :n]
    np.testing.assert_allclose(np.triu(c[:n, :n]), np.triu(wanted), rtol=tolerance, atol=tolerance)
    low, v, out = np.tril(a), room(n, e, dtype, 0), room(n, e, dtype, 0)
    v[:n, :e] = rng.standard_normal((n, e))
    multiply(low, v, out, n, e, n, shape=LOWER)
    np.testing.assert_allclose(out[:n, :e], low[:n, :n].astype("f8") @ v[:n, :e], rtol=tolerance, atol=tolerance)
    multiply(np.triu(a), v, out, n, e, n, shape=LATER)
    wanted = np.triu(a)[:n, :n].astype("f8") @ v[:n, :e]
    np.testing.assert_allclose(out[:n, :e], wanted, rtol=tolerance, atol=tolerance)


@compiled
def _solve(a, a_at, a_row, a_inner, y, y_at, y_row, m, n):
    solve(a, a_at, a_row, a_inner, y, y_at, y_row, m, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangles_are_solved_from_the_first_row_or_the_last(dtype):
    m, n, rng = 16, 21, np.random.default_rng(4)
    a, y = room(m, m, dtype, 0), room(m, n, dtype, 0)
    rows, row = y.shape
    a[:], y[:] = rng.standard_normal(a.shape) / 4, rng.standard_normal(y.shape)
    below = np.tril(a.astype("f8"), -1) + np.eye(m)
    for flip in (1, -1):  # of the second, a and y are read from their ends
        x, end = y.copy(), flip < 0
        _solve(a.ravel(), (a.size - 1) * end, flip * m, flip, x.reshape(-1), (rows - 1) * row * end, flip * row, m, n)
        lower = below if flip > 0 else np.triu(a.astype("f8"), 1) + np.eye(m)
        np.testing.assert_allclose(lower @ x[:, :n], y[:, :n], rtol=0, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (37, 21), (64, 64), (16, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose(dtype, shape):
    m, n = shape
    a = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    b = np.zeros((n, m + 2), dtype)
    run_transpose(a.ravel(), n, m, n, b.reshape(-1), m + 2)
    np.testing.assert_array_equal(b[:, :m], a.T)
    assert (b[:, m:] == 0).all()
