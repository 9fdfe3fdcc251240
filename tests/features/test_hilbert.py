"""Reduced-rank maps against their formula, their errors against what was asked, their densities by integrals."""

from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy import integrate

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._hilbert.choose import _Search
from kernattn.features._hilbert.density import density
from kernattn.features._hilbert.indices import grid
from kernels.test_pullbacks import slope
from saved import reloaded
from xp import to_numpy

K, hilbert = ka.kernels, ka.features.hilbert
RNG = np.random.default_rng(0)
DENSE = (
    K.Gaussian(0.8),
    K.Matern(0.8, 1.3),
    K.Matern(2.5),
    K.RationalQuadratic(1.5, 0.7),
    K.Cauchy(1.2),
    K.Laplacian(0.9),
    K.Sech(0.6),
    3 * K.Gaussian(0.5) + K.Matern(1.5),
    K.Gaussian(1.5) * K.Gaussian(0.8) * K.Matern(1.5, 1.4) * K.RationalQuadratic(2.0),
)


@pytest.mark.parametrize("kernel", DENSE, ids=repr)
def test_densities(kernel):
    """They are the kernel's cosine transform."""

    def value(z):
        return kernel.pairs(np.array([[z]]), np.zeros((1, 1)))[0]

    for omega in (0.4, 3.0):
        wanted = 2 * integrate.quad(value, 0, np.inf, weight="cos", wvar=omega, limlst=400, limit=400)[0]
        assert density(kernel, np.array([[omega]]))[0] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    "kernel", [K.Gaussian((0.8, 1.4)), K.Matern(1.5, (1.0, 2.0)), K.RationalQuadratic(3.0)], ids=repr
)
def test_densities_of_more_axes(kernel):
    """A mixture's in closed form is that of a product with a Gaussian kernel that is flat."""
    omega = RNG.uniform(0.1, 5, (9, 2))
    np.testing.assert_allclose(density(kernel * K.Gaussian(1e7), omega), density(kernel, omega), rtol=1e-9)
    scaled = replace(kernel, lengthscale=1.0)
    each = np.broadcast_to(kernel.lengthscale, (2,))
    np.testing.assert_allclose(density(kernel, omega), np.prod(each) * density(scaled, omega * each), rtol=1e-12)


@pytest.mark.parametrize("ends", ["dirichlet", "neumann"])
def test_the_formula(ends):
    """As Solin and Sarkka write it, eigenfunction by eigenfunction: that of NumPyro and PyMC with Dirichlet ends."""
    half, centre, sizes = np.array([1.5, 3.0]), np.array([0.5, -1.0]), (4, 3)
    domain = np.stack([centre - half / 1.5, centre + half / 1.5], axis=1)
    kernel = K.Matern(2.5, (0.6, 1.1))
    phi = hilbert(kernel, domain, sizes, boundary=1.5, ends=ends)
    x = RNG.uniform(-1, 1, (7, 2)) * half + centre
    first, columns, omegas = int(ends == "dirichlet"), [], []
    for i in range(first, first + sizes[0]):
        for j in range(first, first + sizes[1]):
            omega = np.pi * np.array([i, j]) / (2 * half)
            each = (np.sin if first else np.cos)(omega * (x - centre + half)) / np.sqrt(half)
            each = np.where(np.array([i, j]) == 0, 1 / np.sqrt(2 * half), each)
            columns.append(each[:, 0] * each[:, 1])
            omegas.append(omega)
    np.testing.assert_allclose(phi.basis(x), np.stack(columns, axis=1), rtol=0, atol=1e-13)
    omegas = np.array(omegas)
    np.testing.assert_allclose(phi.frequencies, omegas, rtol=1e-13)
    squares = np.sum((omegas * kernel.lengthscale) ** 2, axis=1)
    wanted = 0.66 * 4 * np.pi * 2.5 * 5**2.5 / (5 + squares) ** 3.5
    np.testing.assert_allclose(phi.scales(), np.sqrt(wanted), rtol=1e-12)
    np.testing.assert_allclose(phi(x), phi.basis(x) * phi.scales(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(phi.scales(K.Gaussian(2.0)), np.sqrt(8 * np.pi * np.exp(-2 * np.sum(omegas**2, axis=1))))


@pytest.mark.parametrize("ends", ["dirichlet", "neumann", "periodic"])
def test_functions_in_any_order(ends):
    """On one axis too a feature is that of its index, whatever its place: each alone, weights and slopes included."""
    kernel = K.Periodic(lengthscale=0.7, period=2.0) if ends == "periodic" else K.Gaussian(0.4)
    phi = hilbert(kernel, (-1.0, 1.0), 5, **({} if ends == "periodic" else {"ends": ends}))
    x, first = RNG.uniform(-1, 1, (6, 1)), int(ends == "dirichlet")
    for which in ([first, first + 1, first + 2], [4, first, 2, 2]):
        some = replace(phi, indices=np.array(which)[:, None])
        found = [replace(phi, indices=np.array([[i]])) for i in which]
        np.testing.assert_allclose(some(x), np.hstack([one(x) for one in found]), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(some(x), some.basis(x) * some.scales(), rtol=1e-12, atol=1e-14)
        slopes = [ka.vjp(one, x)[1](np.ones((6, 1))).x for one in found]
        np.testing.assert_allclose(ka.vjp(some, x)[1](np.ones((6, len(which)))).x, sum(slopes), rtol=1e-11, atol=1e-12)


def test_eigenfunctions_are_orthonormal():
    nodes, weights = np.polynomial.legendre.leggauss(60)
    for phi in (
        hilbert(K.Gaussian(), [0.0, 2.0], 9),
        hilbert(K.Gaussian(), [0.0, 2.0], 9, ends="neumann"),
        hilbert(K.Periodic(3.0), [0.0, 1.0], 9),
    ):
        half = (phi.upper - phi.lower)[0] / 2
        values = phi.basis(half * (nodes + 1)[:, None] + phi.lower)
        np.testing.assert_allclose(half * values.T * weights @ values, np.eye(9), atol=1e-12)


def far_off(phi, domain, count=150):
    """The largest error on the domain, by points that the choice has not seen."""
    corners = np.stack(np.meshgrid(*domain), axis=-1).reshape(-1, len(domain))
    x = np.concatenate([np.random.default_rng(9).uniform(*domain.T, (count, len(domain))), corners])
    return np.max(np.abs(phi(x) @ phi(x).T - phi.kernel(x)))


@pytest.mark.parametrize("ends", ["dirichlet", "neumann"])
@pytest.mark.parametrize(
    ("kernel", "d", "error"),
    [
        (K.Matern(1.5, 0.5), 1, 1e-3),
        (K.Gaussian(0.5), 1, 1e-6),
        (K.Gaussian(0.7) * K.Matern(2.5), 1, 1e-3),
        (K.Matern(2.5, (1.0, 0.7)), 2, 1e-2),
        (K.Gaussian(1.0), 3, 1e-2),
    ],
    ids=repr,
)
def test_the_error_is_that_asked_for(kernel, d, error, ends):
    """A tenth fewer features are too few, and these are enough."""
    domain = np.array([[-1.0, 1.0]] * d)
    phi = hilbert(kernel, domain, error=error, ends=ends)
    assert far_off(phi, domain) < 1.1 * error
    fewer = replace(phi, indices=phi.indices[: int(0.9 * phi.num_features)])
    assert far_off(fewer, domain) > error


@pytest.mark.parametrize("ends", ["dirichlet", "neumann"])
def test_errors_that_no_features_keep_are_refused_before_any_is_looked_at(ends):
    for kernel, d, error in ((K.Matern(1.5, 0.5), 1, 1e-12), (K.Matern(2.5), 2, 1e-12), (K.Cauchy(), 1, 1e-9)):
        said = pytest.raises(ParameterError, match="error must be one that 16384 features of a box keep")
        with mock.patch.object(_Search, "errors", side_effect=AssertionError), said:
            hilbert(kernel, [[-1.0, 1.0]] * d, error=error, ends=ends)


def test_what_random_features_cannot():
    """A hundredth of the error of the best random map, for a Matern kernel of one axis at 64 features."""
    kernel, x = K.Matern(1.5, 0.5), np.linspace(-1, 1, 80)[:, None]
    phi = hilbert(kernel, [-1.0, 1.0], 64)

    def error(phi):
        return np.sqrt(np.mean((phi(x) @ phi(x).T - kernel(x)) ** 2))

    random = [
        error(ka.random_features(kernel, 1, 64, "trigonometric", projection, rng=seed))
        for projection in ("orthogonal", "iid", "sobol", "halton")
        for seed in range(3)
    ]
    assert 100 * error(phi) < min(random)


def test_bias_and_numbers_of_features():
    kernel = K.Matern(2.5, 0.8)
    phi = hilbert(kernel, [[-1.0, 1.0]] * 2, 50)
    x, y = RNG.uniform(-1, 1, (2, 20, 2))
    bias = np.sum(phi(x) * phi(y), axis=1) - kernel.pairs(x, y)
    np.testing.assert_allclose(phi.bias(x, y), bias, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(phi.variance(x, y), 0.0)
    number = phi.num_features_for(x, y, error=3e-3, probability=0.9)
    exact = replace(phi, indices=grid((60, 60), 1))
    order = np.argsort(-exact.scales(), kind="stable")
    exact = replace(phi, indices=exact.indices[order[:number]])
    assert (
        np.max(np.abs(exact.bias(x, y))) <= 3e-3 < np.max(np.abs(replace(exact, indices=exact.indices[:-1]).bias(x, y)))
    )


def test_periodic_kernels():
    """The Fourier series ends at rounding; products are locally periodic."""
    kernel = K.Periodic(2.0, 0.8)
    phi = hilbert(kernel, [0.0, 1.0], 41)
    x = RNG.uniform(-5, 5, (30, 1))
    np.testing.assert_allclose(phi(x) @ phi(x).T, kernel(x), atol=1e-13)
    two = hilbert(K.Periodic((2.0, 3.0), 1.1), [[0.0, 1.0]] * 2, (21, 21))
    z = RNG.uniform(-5, 5, (30, 2))
    np.testing.assert_allclose(two(z) @ two(z).T, two.kernel(z), atol=1e-9)
    local = hilbert(K.Gaussian(4.0), [-5.0, 5.0], error=1e-7) * phi
    np.testing.assert_allclose(local(x) @ local(x).T, (K.Gaussian(4.0) * kernel)(x), atol=1e-6)
    few = hilbert(kernel, [0.0, 1.0], error=1e-3)
    assert few.num_features < 20
    np.testing.assert_allclose(few(x) @ few(x).T, kernel(x), atol=1.1e-3)


def test_gradients_and_kinds(xp):
    phi = hilbert(K.Matern(2.5, (1.0, 0.7)), [[-1.0, 1.0]] * 2, 9)
    flat = hilbert(K.Gaussian(), [[-1.0, 1.0]] * 2, 9, ends="neumann")
    x = RNG.uniform(-1, 1, (2, 4, 2))
    with xp.wide():
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
            given = xp.asarray(x, dtype)
            for out, wanted in ((xp.whole(phi)(given), phi(x)), (xp.whole(phi.basis)(given), phi.basis(x))):
                assert xp.holds(out)
                assert out.dtype == given.dtype
                np.testing.assert_allclose(to_numpy(out), wanted, rtol=tolerance, atol=tolerance)
        for lengthscale in (np.array(0.9), np.array([0.5, 1.2])):
            for kernel in (K.Gaussian(), K.Matern(1.5), K.RationalQuadratic(2.0), K.Cauchy()):
                scales = xp.whole(lambda lengthscale, kernel=kernel: phi.scales(kernel, lengthscale=lengthscale))
                traced = scales(xp.asarray(lengthscale, "float64"))
                plain = phi.scales(replace(kernel, lengthscale=lengthscale.tolist()))
                np.testing.assert_allclose(to_numpy(traced), plain, rtol=1e-10)
    for each in (phi, flat, phi * hilbert(K.Periodic(), [[0.0, 1.0]] * 2, 5)):
        out, pullback = ka.vjp(each, x)
        g = RNG.standard_normal(out.shape)
        found = pullback(g).x
        np.testing.assert_allclose(found, slope(lambda x, f=each, g=g: np.sum(g * f(x)), x), rtol=1e-5, atol=1e-8)


def test_processes_and_files(tmp_path):
    x = RNG.uniform(-1, 1, (200, 1))
    phi = hilbert(K.Gaussian(0.4), [-1.0, 1.0], error=1e-8)
    reloaded(phi, tmp_path, x)
    reloaded(hilbert(K.Periodic((1.0, 2.0)), [[0.0, 1.0]] * 2, 6), tmp_path, np.ones((2, 2)))
    process = ka.solvers.gp(ka.solvers.moments(x, phi, y=np.sin(4 * x[:, 0])), noise=0.1, amplitude=1.0)
    inverse = np.linalg.inv(K.Gaussian(0.4)(x) + 0.01 * np.eye(200))
    new = np.linspace(-1, 1, 9)[:, None]
    across = K.Gaussian(0.4)(new, x)
    np.testing.assert_allclose(process.variance(new), 1 - np.sum(across @ inverse * across, axis=1), atol=1e-5)
    assert process.draw(3, rng=0)(new).shape == (9, 3)


def test_boundaries_are_any_real_number():
    phi, same = (hilbert(K.Gaussian(), [0.0, 1.0], 4, boundary=c) for c in (Fraction(3, 2), 1.5))
    np.testing.assert_array_equal(phi.lower, same.lower)
    np.testing.assert_array_equal(phi.scales(), same.scales())


def test_refusals():
    gaussian = K.Gaussian()
    for given, words in (
        ({"num_features": 4, "error": 0.1}, "one of num_features and error"),
        ({}, "one of num_features and error"),
        ({"num_features": 0}, "num_features must be a positive integer"),
        ({"num_features": b"x"}, "num_features must be a positive integer"),
        ({"num_features": (3, 3)}, "one for each of 1 axes"),
        ({"error": -1.0}, "error must be"),
        ({"num_features": 4, "boundary": 0.5}, "boundary must be 1 or more"),
        ({"num_features": 4, "ends": "free"}, "ends must be"),
        ({"num_features": 4, "ends": "periodic"}, "ends must be 'periodic' for a Periodic kernel and no other"),
    ):
        with pytest.raises(ParameterError, match=words):
            hilbert(gaussian, [0.0, 1.0], **given)
    for domain, error in (([1.0, 0.0], ParameterError), ([0.0, np.inf], ParameterError), ([1.0], ShapeError)):
        with pytest.raises(error, match="domain must"):
            hilbert(gaussian, domain, 4)
    with pytest.raises(ParameterError, match="4 axes at most; got 5"):
        hilbert(gaussian, [[0.0, 1.0]] * 5, 4)
    with pytest.raises(ParameterError, match=r"4 axes at most; got 9: .* The domain of rows x is"):
        hilbert(gaussian, np.ones((9, 2)), 4)  # rows, not their domain
    for kernel in (K.Softmax(), K.Gaussian() * K.Cauchy(), K.Polynomial(2) + K.Gaussian()):
        with pytest.raises(ParameterError, match="kernel must be"):
            hilbert(kernel, [0.0, 1.0], 4)
    with pytest.raises(ParameterError, match="16384 features of a box keep"):
        hilbert(K.Matern(2.5, 0.01), [[0.0, 1.0]] * 3, error=0.01)
    with pytest.raises(ParameterError, match="boundary must be None"):
        hilbert(K.Periodic(), [0.0, 1.0], 4, boundary=2.0)
    phi = hilbert(gaussian, [0.0, 1.0], 4)
    with pytest.raises(ParameterError, match="lengthscale must be"):
        phi.scales(lengthscale=np.ones(2))
    with pytest.raises(ParameterError, match="indices must be 1 or more"):
        replace(phi, indices=np.array([[0]]))


@pytest.mark.parametrize("ends", ["dirichlet", "neumann"])
def test_rows_outside_of_the_box_are_refused(ends, xp):
    """By the row and the axis; the box itself belongs to it, and a period has no outside."""
    phi = hilbert(K.Matern(1.5, 0.5), [[-1.0, 1.0], [0.0, 3.0]], 16, ends=ends)
    inside = np.stack([phi.lower, phi.upper])
    assert np.isfinite(phi(inside)).all()
    for call in (phi, phi.basis, phi.scaled_query):
        with pytest.raises(ParameterError, match=r"along axis 1; row 1, 2 holds 40: make the map with a domain"):
            call(xp.asarray([[[0.0, 1.0]] * 3, [[0.0, 1.0], [0.0, 2.0], [0.0, 40.0]]], "float32"))
    season = hilbert(K.Periodic(1.0), [0.0, 1.0], 9)
    np.testing.assert_allclose(season(np.array([[7.25]])), season(np.array([[0.25]])), atol=1e-12)


@pytest.mark.parametrize("lengthscale", [0.5, 0.9])
def test_the_error_is_kept_between_the_points_too(lengthscale):
    """By a few points inside the domain the error of a row with itself was 6 and 7 % above what was asked."""
    kernel = ka.kernels.Gaussian(lengthscale)
    phi = ka.features.hilbert(kernel, [[-1.0, 1.0]] * 2, error=2e-3)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), axis=-1).reshape(-1, 2)
    assert np.max(np.abs(np.sum(phi(grid) ** 2, axis=1) - 1)) <= 2e-3
