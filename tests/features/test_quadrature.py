"""Quadrature features: exact for polynomials of the degree that they claim, errors that fall, weights never below 0."""

from itertools import product
from math import prod

import numpy as np
import pytest
from scipy.optimize import nnls

import kernattn as ka
from kernattn import errors
from kernattn.features._deterministic.fit import solve_nonnegative
from laws import arrays
from saved import reloaded
from xp import KINDS, to_numpy

K = ka.kernels
GAUSSIAN = K.Gaussian(2.0)


def quadrature(dim, level, rule="tensor", kernel=GAUSSIAN, data=None):
    return ka.features.quadrature(kernel, dim, level, rule, data)


def inputs(n, d, seed=1):
    return np.random.default_rng(seed).standard_normal((n, d))


def gaussian(x, y, lengthscale=2.0):
    return np.exp(-0.5 * np.sum((x[:, None] - y[None]) ** 2, axis=-1) / lengthscale**2)


def estimate(phi, x, y=None):
    return phi.query(x) @ phi.key(x if y is None else y).T


def normal_moment(power):
    return 0 if power % 2 else prod(range(1, power, 2))


@pytest.mark.parametrize(("d", "level"), [(1, 1), (1, 5), (2, 3), (3, 4), (5, 2)])
@pytest.mark.parametrize("rule", ka.features.RULES)
def test_degree_of_exactness(rule, d, level):
    """Even moments to the degree 2L - 1, in each axis or in total; odd ones vanish by symmetry. The next one fails."""
    phi = quadrature(d, level, rule)
    degree = 2 * level - 1

    def moment(powers):
        return phi.weights @ np.prod(phi.omega ** np.array(powers), axis=-1)

    for powers in product(range(0, degree + 1, 2), repeat=d):
        if rule == "tensor" or sum(powers) <= degree:
            exact = prod(normal_moment(power) for power in powers)
            np.testing.assert_allclose(moment(powers), exact, rtol=1e-11, atol=1e-12)
    if (rule, level) not in (("smolyak", 3), ("smolyak", 5)) or d > 1:  # rules of 3 and of 5 nodes do for two levels
        beyond = [2 * level if i == 0 else 0 for i in range(d)] if rule == "tensor" else [2] * min(level, d)
        if sum(beyond) == 2 * level:
            beyond = beyond + [0] * (d - len(beyond))
            exact = prod(normal_moment(power) for power in beyond)
            assert abs(moment(beyond) - exact) > 0.1 * exact


@pytest.mark.parametrize("rule", ka.features.RULES)
def test_the_formula_as_written(rule):
    """Sums of weighted cosines over all nodes of the product of one-dimensional rules, from scratch."""
    x, y = inputs(6, 3), inputs(5, 3, 2)
    delta = (x[:, None] - y[None]) / 2.0
    if rule == "tensor":
        nodes, weights = np.polynomial.hermite_e.hermegauss(4)
        weights = weights / np.sqrt(2 * np.pi)
        expected = sum(weights[list(i)].prod() * np.cos(delta @ nodes[list(i)]) for i in product(range(4), repeat=3))
        np.testing.assert_allclose(estimate(quadrature(3, 4), x, y), expected, atol=1e-12)
        return
    expected = np.zeros((6, 5))  # level 2: the axes, and 0 with 1 - d/3
    for axis in range(3):
        expected += np.cos(np.sqrt(3) * delta[..., axis]) / 3
    np.testing.assert_allclose(estimate(quadrature(3, 2, rule), x, y), expected, atol=1e-12)


def test_numbers_of_features():
    for d, level in ((1, 4), (2, 5), (3, 3)):
        assert quadrature(d, level).num_features == level**d
    for d in (2, 5, 9):
        assert quadrature(d, 2, "smolyak").num_features == 2 * d + 1
        assert quadrature(d, 3, "smolyak").num_features == 2 * d**2 + 1
    assert quadrature(4, 3, "smolyak").num_features == 25  # weights (4 - d) / 18 of the axes vanish
    assert quadrature(3, 1).num_features == quadrature(3, 1, "smolyak").num_features == 1


@pytest.mark.parametrize("rule", ka.features.RULES)
def test_errors_fall_with_the_level(rule):
    x = inputs(60, 3)
    exact = gaussian(x, x)
    worst = [np.max(np.abs(estimate(quadrature(3, level, rule), x) - exact)) for level in (1, 3, 5, 7, 9)]
    assert (np.diff(np.log(worst)) < -0.5).all(), worst


@pytest.mark.parametrize("rule", ka.features.RULES)
def test_the_order_of_the_error(rule):
    """Halving distances divides it by 2^(2L)."""
    level, (x,) = 3, arrays(2, (1, 3), dtype="float64")
    phi = quadrature(3, level, rule)
    near, far = (abs(phi.bias(s * x, 0 * x))[0] for s in (0.2, 0.4))
    assert abs(far / near / 2 ** (2 * level) - 1) < 0.1


@pytest.mark.parametrize(
    ("d", "rule", "level"), [(2, "tensor", 8), (3, "tensor", 6), (3, "smolyak", 7), (4, "tensor", 4)]
)
def test_fewer_features_than_random_ones_in_few_dimensions(d, rule, level):
    """At equal number the root mean square error is far below that of orthogonal frequencies, as it is in the mean."""
    x, kernel = inputs(100, d), K.Gaussian(0.5 * (d + 1))
    phi = quadrature(d, level, rule, kernel)
    random = ka.random_features(kernel, d, 2 * (phi.num_features // 2), "trigonometric", "orthogonal", rng=0)
    predicted = np.mean(random.variance(x[:, None], x[None]))
    assert np.mean((estimate(phi, x) - kernel(x)) ** 2) < predicted / 4


@pytest.mark.parametrize(
    "kernel", [GAUSSIAN, K.Gaussian((0.8, 1.0, 3.0)), K.Softmax()], ids=["gaussian", "ard", "softmax"]
)
@pytest.mark.parametrize("rule", ka.features.RULES)
def test_moments_of_a_deterministic_map(rule, kernel):
    phi, (x, y) = quadrature(3, 5, rule, kernel), arrays(1, (2, 4, 3), (2, 4, 3), dtype="float64")
    exact = kernel.pairs(x, y)
    np.testing.assert_allclose(phi.mean(x, y), np.sum(phi.query(x) * phi.key(y), axis=-1), rtol=1e-12)
    np.testing.assert_allclose(phi.bias(x, y), phi.mean(x, y) - exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(phi.variance(x, y), np.zeros((2, 4)))
    assert phi.redraw(3) is phi
    if kernel is not GAUSSIAN:
        return
    np.testing.assert_allclose(phi.mean(x, x), 1.0, rtol=1e-12)


def test_softmax_is_the_gaussian_times_rows():
    x, y = 0.5 * inputs(7, 4), 0.5 * inputs(6, 4, 2)
    softmax, one = K.Softmax(scale=1.0), K.Gaussian()
    rows = np.exp(np.sum(x**2, axis=-1) / 2)[:, None] * np.exp(np.sum(y**2, axis=-1) / 2)
    got = estimate(quadrature(4, 3, "smolyak", softmax), x, y)
    np.testing.assert_allclose(got, rows * estimate(quadrature(4, 3, "smolyak", one), x, y), rtol=1e-12)
    huge = quadrature(4, 2, kernel=softmax).scaled(100 * x)
    assert np.isfinite(huge.values).all()
    assert np.isfinite(huge.log_scale).all()


def test_signs_of_smolyak_weights_go_to_the_keys():
    phi, x = quadrature(6, 2, "smolyak"), inputs(5, 6)
    assert phi.weights[0] == pytest.approx(1 - 6 / 3)
    assert (phi.weights[1:] > 0).all()
    np.testing.assert_allclose(phi.key(x)[:, 0], -phi.query(x)[:, 0])
    np.testing.assert_allclose(phi.key(x)[:, 1:], phi.query(x)[:, 1:])
    np.testing.assert_allclose(np.diag(estimate(phi, x)), 1.0)


@pytest.mark.parametrize(("rule", "level"), [("tensor", 4), ("smolyak", 4)])
def test_weights_fitted_to_data(rule, level):
    x, y = inputs(200, 4), inputs(100, 4, 2)
    own, fitted = quadrature(4, level, rule), quadrature(4, level, rule, data=x)
    assert (fitted.weights > 0).all()
    assert fitted.num_features <= own.num_features
    np.testing.assert_array_equal(fitted(y), fitted.key(y))
    random = ka.random_features(GAUSSIAN, 4, 2 * (fitted.num_features // 2), "trigonometric", "orthogonal", rng=0)
    error = np.mean((estimate(fitted, y) - gaussian(y, y)) ** 2)
    assert error < np.mean(random.variance(y[:, None], y[None])) / 4
    rows = x[np.linspace(0, 199, 64).astype(int)]
    assert np.linalg.eigvalsh(estimate(fitted, rows))[0] > -1e-10
    least = np.sum((estimate(fitted, rows) - gaussian(rows, rows)) ** 2)
    assert least < np.sum((estimate(own, rows) - gaussian(rows, rows)) ** 2)
    np.testing.assert_array_equal(quadrature(4, level, rule, data=x).weights, fitted.weights)


def test_nonnegative_least_squares():
    """SciPy's where it converges; where columns depend on each other, as good as the exact fit that there is."""
    rng = np.random.default_rng(1)
    for shape in ((30, 8), (50, 40), (8, 20)):
        a, b = rng.standard_normal(shape), rng.standard_normal(shape[0])
        w = solve_nonnegative(a, b)
        assert (w >= 0).all()
        np.testing.assert_allclose(np.linalg.norm(a @ w - b), nnls(a, b)[1], rtol=1e-6, atol=1e-3)
    x = inputs(12, 2)
    phi = quadrature(2, 12, kernel=K.Gaussian(5.0), data=x)  # nearly flat: any few nodes do
    np.testing.assert_allclose(estimate(phi, x), gaussian(x, x, 5.0), atol=1e-4)
    for rows in (np.ones((1, 2)), np.ones((3, 2))):
        np.testing.assert_allclose(estimate(quadrature(2, 3, data=rows), rows), 1.0, atol=1e-6)


def test_in_attention_and_saved(tmp_path):
    q, k, v = arrays(4, (2, 6, 3), (2, 9, 3), (2, 9, 4), dtype="float64")
    phi = quadrature(3, 4, "smolyak", K.Softmax())
    weights = phi.query(q) @ np.swapaxes(phi.key(k), -1, -2)
    expected = weights @ v / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(ka.linear_attention(q, k, v, phi), expected, rtol=1e-9)
    reloaded(phi, tmp_path, k)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_library(kind):
    phi, (x,) = quadrature(3, 3, "smolyak"), arrays(4, (6, 3))
    got = phi.key(kind.asarray(x))
    np.testing.assert_allclose(to_numpy(got), phi.key(x), rtol=1e-5, atol=1e-6)
    assert "float32" in str(got.dtype)


def test_refusals():
    for kernel in (K.Matern(1.5), K.Laplacian(), K.Cauchy(), K.Polynomial(2), GAUSSIAN * GAUSSIAN):
        with pytest.raises(errors.ParameterError, match=r"kernel must be Gaussian or Softmax.*got"):
            quadrature(3, 2, kernel=kernel)
    with pytest.raises(errors.DTypeError, match="kernel must be a Kernel; got 'gaussian'"):
        quadrature(3, 2, kernel="gaussian")
    with pytest.raises(errors.ParameterError, match=r"rule must be one of smolyak, tensor; got 'sparse'"):
        quadrature(3, 2, "sparse")
    for number in (0, 2.0, "3"):
        with pytest.raises(errors.ParameterError, match="level must be a positive integer"):
            quadrature(3, number)
        with pytest.raises(errors.ParameterError, match="dim must be a positive integer"):
            quadrature(number, 3)
    for d, level, rule in ((64, 2, "tensor"), (1, 101, "tensor"), (64, 4, "smolyak"), (200, 5, "smolyak")):
        with pytest.raises(errors.ParameterError, match=rf"level must be at most 100.*{rule}.*dim = {d}; got {level}"):
            quadrature(d, level, rule)
    for rule in ka.features.RULES:  # counted no further than to what is allowed
        with pytest.raises(errors.ParameterError, match="level must be"):
            quadrature(10**6, 100, rule)
        assert quadrature(100, 1, rule).num_features == 1
    with pytest.raises(errors.ParameterError, match="at most 1024 nodes at dim = 6 with data; got 4"):
        quadrature(6, 4, data=inputs(5, 6))
    with pytest.raises(errors.ShapeError, match="data must be"):
        quadrature(3, 2, data=inputs(5, 4))
    with pytest.raises(errors.ShapeError, match="lengthscale"):
        quadrature(2, 2, kernel=K.Gaussian((1.0, 2.0, 3.0)))
