"""The map of rows times a matrix: that of the transformed rows, its closed forms, gradients and refusals."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 7, 4))
A = RNG.standard_normal((4, 3))
RANDOM = ka.random_features(ka.kernels.Gaussian(1.3), dim=3, num_features=8, rng=0)
LANDMARKS = ka.features.nystrom(X @ A, ka.kernels.Matern(1.5, 2.0), 5, rng=0)
SUM = LANDMARKS + ka.features.linear([1.0, 2.0, 3.0])
INNER = pytest.mark.parametrize("inner", [RANDOM, LANDMARKS, SUM], ids=["random", "landmarks", "sum"])


@INNER
def test_it_is_the_map_of_the_transformed_rows(inner):
    phi = ka.features.Transformed(inner, A)
    assert (phi.dim, phi.num_features) == (4, inner.num_features)
    np.testing.assert_allclose(phi(X), inner(X @ A), rtol=1e-12, atol=1e-14)
    single = phi(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, phi(X), rtol=1e-5, atol=1e-5)
    scaled = phi.scaled(X)
    np.testing.assert_allclose(scaled.values * np.exp(scaled.log_scale), phi(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(phi.redraw(3)(X), ka.features.Transformed(inner.redraw(3), A)(X))


def test_moments_are_those_of_the_transformed_rows():
    phi = ka.features.Transformed(RANDOM, A)
    for of in ("mean", "bias", "variance"):
        np.testing.assert_allclose(getattr(phi, of)(X, Y), getattr(RANDOM, of)(X @ A, Y @ A), rtol=1e-12)
    wanted = {"error": 0.1, "probability": 0.99}
    assert phi.num_features_for(X, Y, **wanted) == RANDOM.num_features_for(X @ A, Y @ A, **wanted)


def test_a_diagonal_matrix_is_a_lengthscale_for_each_axis():
    scales = np.array([0.5, 1.0, 3.0])
    kernel = ka.kernels.Gaussian(scales)
    inner = ka.features.nystrom(X[:, :3] / scales, ka.kernels.Gaussian(), 5, rng=0)
    phi = ka.features.Transformed(inner, np.diag(1 / scales))
    other = ka.features.nystrom(X[:, :3], kernel, 5, rng=0)
    np.testing.assert_allclose(phi(X[:, :3]), other(X[:, :3]), rtol=1e-9, atol=1e-12)


@INNER
def test_gradients_are_differences(inner):
    phi, g, step = ka.features.Transformed(inner, A), RNG.standard_normal((7, inner.num_features)), 1e-6
    found = ka.vjp(phi, X)[1](g).x
    for i in range(4):
        shift = step * np.eye(4)[i]
        slope = np.sum(g * (phi(X + shift) - phi(X - shift)), axis=1) / (2 * step)
        np.testing.assert_allclose(found[:, i], slope, rtol=1e-6, atol=1e-8)


def test_lengthscales_are_those_of_the_inner_map():
    phi, y = ka.features.Transformed(LANDMARKS, A), np.sin(X[:, 0])

    def evidence(lengthscale):
        return ka.solvers.log_evidence(X, y, phi, noise=0.3, amplitude=1.0, lengthscale=lengthscale)

    value, pullback = ka.vjp(ka.solvers.log_evidence, X, y, phi, noise=0.3, amplitude=1.0)
    slope = (evidence(np.array(2.0 + 1e-5)) - evidence(np.array(2.0 - 1e-5))) / 2e-5
    np.testing.assert_allclose(pullback(np.ones_like(value)).lengthscale, slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("relu", A), DTypeError, "inner"),
        ((RANDOM, A[:, 0]), ParameterError, "matrix"),
        ((RANDOM, np.full((4, 3), np.nan)), ParameterError, "matrix"),
        ((RANDOM, A.T), ShapeError, r"matrix must be \(d, 3\)"),
    ],
)
def test_refusals(arguments, error, match):
    with pytest.raises(error, match=match):
        ka.features.Transformed(*arguments)
