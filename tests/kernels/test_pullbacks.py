"""Pullbacks of kernels and of maps without a spec, against differences in float64."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from kernattn.kernels._pullbacks import PULLBACKS, has_pullback, pull, pull_all

K = ka.kernels
KERNELS = (
    K.Gaussian((0.7, 1.0, 2.0)),
    *(K.Matern(nu, 1.3) for nu in (0.5, 0.8, 1.0, 1.5, 2.5, 3.3)),
    K.RationalQuadratic(0.7, 1.4),
    K.Cauchy(2.0),
    K.Laplacian(1.2),
    K.Sech(0.8),
    K.Periodic((2.0, 3.0, 4.0), 0.9),
    K.Polynomial(3, 0.5, 1.0),
    K.Softmax(),
    2 * K.Gaussian() + K.Periodic(3.0),
    K.Gaussian(2.0) * K.Periodic(2.0) * K.Matern(1.5),
)
RNG = np.random.default_rng(0)
X, L = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3))


def slope(f, x, h=1e-6):
    """Central differences of a function of an array."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        out[i] = (f(up) - f(down)) / (2 * h)
    return out


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels(kernel):
    g = RNG.standard_normal((5, 4))
    dx, dy = pull(kernel, X, L, g)
    np.testing.assert_allclose(dx, slope(lambda x: np.sum(g * kernel(x, L)), X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dy, slope(lambda y: np.sum(g * kernel(X, y)), L), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", [K.Gaussian((0.7, 1.0, 2.0)), K.Matern(1.5, 1.3), K.Matern(2.5, 0.4)], ids=repr)
def test_loops_are_array_operations(kernel, monkeypatch):
    """Rows that are equal and rows that are far apart too, whatever their order in memory."""
    x = np.asfortranarray(np.concatenate([X, L[:2], 1e8 * X[:1]]))
    g = RNG.standard_normal((8, 4))
    before = g.copy()
    found = pull_all(kernel, x, L, g)
    np.testing.assert_array_equal(g, before)
    monkeypatch.setattr("kernattn.kernels._pullbacks.OP", SimpleNamespace(choose=lambda x: "reference"))
    for one, other in zip(found, pull_all(kernel, x, L, g), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_every_kernel_with_a_pullback_is_here():
    assert PULLBACKS.keys() <= {type(kernel) for kernel in KERNELS}
    assert not has_pullback(K.Gaussian() + K.ArcCosine())


def test_equal_rows():
    """Where a kernel has a corner nothing flows."""
    for kernel in (K.Matern(0.5), K.Matern(0.8), K.Laplacian()):
        dx, dy = pull(kernel, X[:1], X[:1].copy(), np.ones((1, 1)))
        np.testing.assert_array_equal([dx, dy], 0.0)


@pytest.mark.parametrize("cutoff", [0.0, 0.05])
@pytest.mark.parametrize(
    "kernel", [K.Matern(2.5, (1.0, 2.0, 3.0)), K.Gaussian(1.5), K.RationalQuadratic(2.0)], ids=repr
)
def test_landmarks(kernel, cutoff):
    """By rows and by the lengthscale, through the inverse root of the landmarks' matrix."""
    phi = ka.features.nystrom(RNG.standard_normal((30, 3)), kernel, 12, cutoff=cutoff, rng=0)
    x = X.reshape(1, 5, 3)
    out, pullback = ka.vjp(phi, x)
    g = RNG.standard_normal(out.shape)
    found = pullback(g)
    np.testing.assert_allclose(found.x, slope(lambda x: np.sum(g * phi(x)), x), rtol=1e-5, atol=1e-7)

    def value(lengthscale):
        other = replace(kernel, lengthscale=lengthscale if lengthscale.ndim else float(lengthscale))
        values, vectors = np.linalg.eigh(other(phi.landmarks))
        return np.sum(g * replace(phi, kernel=other, eigenvalues=values, eigenvectors=vectors)(x))

    wanted = slope(value, np.asarray(kernel.lengthscale))
    np.testing.assert_allclose(found.phi.lengthscale, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_of_fewer_bits_have_the_slopes_of_the_map(dtype):
    """The map is computed in float64, with directions that float32 would not resolve: so are its slopes."""
    phi = ka.features.nystrom(RNG.standard_normal((60, 3)), K.Gaussian((3.0, 4.0, 5.0)), 30, rng=0)
    assert phi.eigenvalues[-1] > 1e8 * phi.eigenvalues[0]
    x = X.astype(dtype)
    g = RNG.standard_normal((5, 30)).astype(dtype)
    found, wanted = (ka.vjp(phi, rows)[1](g.astype(rows.dtype)) for rows in (x, x.astype(float)))
    assert found.x.dtype == dtype
    for a, b in ((found.x, wanted.x), (found.phi.lengthscale, wanted.phi.lengthscale)):
        np.testing.assert_allclose(a, b, rtol=0, atol=np.finfo(dtype).eps * np.abs(b).max())


def test_sums_and_products_of_maps():
    phi = ka.features.nystrom(RNG.standard_normal((30, 3)), K.Gaussian(), 6, rng=0)
    other = ka.random_features(K.Gaussian(), 3, 8, rng=0)
    for joined in (phi + other, 3 * (phi * other * phi), 2 * phi):
        out, pullback = ka.vjp(joined, X)
        g = RNG.standard_normal(out.shape)
        found = pullback(g).x
        np.testing.assert_allclose(found, slope(lambda x, f=joined, g=g: np.sum(g * f(x)), X), rtol=1e-5, atol=1e-7)


def test_refusals():
    phi = ka.features.nystrom(X, K.ArcCosine(), 3, rng=0)
    with pytest.raises(ParameterError, match="kernel that has a pullback"):
        ka.vjp(phi, X)
    with pytest.raises(ParameterError, match="pullback of its own; Monomials has none"):
        ka.vjp(ka.features.polynomial(2), X)
