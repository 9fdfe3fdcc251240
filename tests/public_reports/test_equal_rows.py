"""Gradients of kernels and of maps where two rows are the same."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from kernattn.errors import ParameterError

torch = pytest.importorskip("torch")
K = ka.kernels
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 2))
KERNELS = {
    "Matern 1/2": K.Matern(0.5),
    "Matern 3/2": K.Matern(1.5, (0.5, 2.0)),
    "Matern 5/2": K.Matern(2.5),
    "a sum": K.Matern(1.5) + K.Gaussian(2.0),
    "a product": K.Matern(2.5) * K.Periodic(2.0),
    "arc cosine": K.ArcCosine(1),
    "arc cosine, twice": K.ArcCosine(2),
}
STEEP = "Matern 1/2"  # it has a kink at equal rows: the slope is 0 by convention, as that of |x|
WAYS = {
    "matrix": lambda k, x, y: k(x, y),
    "own": lambda k, x, y: k(x),
    "pairs": lambda k, x, y: k.pairs(x, y),
    "diagonal": lambda k, x, y: k.diag(x),
    "product": lambda k, x, y: k.matmul(x, y, y) if torch.is_tensor(x) else k(x, y) @ y,
}


def differences(f, x, step=1e-5):
    moves = step * np.eye(x.size).reshape(x.size, *x.shape)
    return np.reshape([(f(x + move) - f(x - move)) / (2 * step) for move in moves], x.shape)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_equal_rows_have_gradients(name, way):
    """dfm/tinygp#115: the gradient at a row of the data was NaN; likewise JuliaGaussianProcesses/KernelFunctions.jl#571
    and, for rows that repeat, JuliaGaussianProcesses/Stheno.jl#121.
    """

    def total(x, y):
        found = WAYS[way](KERNELS[name], x, y)
        weights = np.cos(np.arange(np.prod(tuple(found.shape)))).reshape(tuple(found.shape))
        return (found * (torch.tensor(weights) if torch.is_tensor(found) else weights)).sum()

    x = torch.tensor(X, requires_grad=True)
    total(x, torch.tensor(X)).backward()
    assert_allclose(x.grad, differences(lambda x: total(x, X), X), atol=1e-5 if name != STEEP else 2e-5)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_curvature_of_equal_rows(nu):
    """dfm/tinygp#115: -3 for 3/2 and -5/3 for 5/2 at a row itself, in PyTorch and in JAX."""
    kernel, exact = K.Matern(nu), {1.5: -3.0, 2.5: -5 / 3}[nu] * np.eye(2)
    row = torch.tensor(X[0])
    assert_allclose(
        torch.func.jacrev(torch.func.jacrev(lambda x: kernel.pairs(x[None], row[None])[0]))(row), exact, atol=1e-12
    )
    jax = pytest.importorskip("jax")
    row = jax.numpy.asarray(X[0])
    found = jax.hessian(lambda x: kernel.pairs(x[None], row[None])[0])(row)
    assert_allclose(found, exact, atol=1e-5)


@pytest.mark.parametrize("way", ["matrix", "pairs"])
@pytest.mark.parametrize("order", [1, 2])
def test_curvature_of_arc_cosines_at_equal_rows(order, way):
    """dfm/tinygp#115, of other kernels: to the second order they are x^T y, and 4 |x| |y| x^T y - |x|^2 |y|^2."""
    row, size = np.array([2.0, 1.0]), 5.0
    exact = {1: np.zeros((2, 2)), 2: 2 * size * np.eye(2) + 4 * np.outer(row, row)}[order]

    def value(x, y):
        return WAYS[way](K.ArcCosine(order), x[None], y[None]).sum()

    here = torch.tensor(row)
    assert_allclose(torch.func.jacrev(torch.func.jacrev(lambda x: value(x, here)))(here), exact, atol=1e-6)
    jax = pytest.importorskip("jax")
    here = jax.numpy.asarray(row)
    assert_allclose(jax.hessian(lambda x: value(x, here))(here), exact, atol=1e-4)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_a_map_at_one_of_its_landmarks(nu):
    """cornellius-gp/gpytorch#884: with one row, each call had another gradient; likewise meta-pytorch/botorch#279."""
    phi = ka.features.nystrom(X, K.Matern(nu), 3, rng=0)
    for row in X:
        found = []
        for rows in ([row], [row], [row, row]):
            x = torch.tensor(np.asarray(rows), requires_grad=True)
            phi(x).sum().backward()
            found.append(x.grad.numpy())
        assert_allclose(found[0], differences(lambda x: phi(x).sum(), row[None]), atol=1e-6)
        assert_allclose(found[1], found[0], rtol=0, atol=0)
        assert_allclose(found[2], np.concatenate([found[0]] * 2), rtol=1e-9)


@pytest.mark.parametrize("kernel", [K.Matern(2.0), K.Matern(0.75) + K.Gaussian()])
def test_no_gradient_is_lost_on_the_host(kernel):
    """pymc-devs/pytensor#1308: SciPy's Bessel functions are not differentiated; orders as in gpytorch's #1252."""
    x = torch.tensor(X, requires_grad=True)
    phi = ka.features.nystrom(X, kernel, 3, rng=0)
    for call in (kernel, kernel.diag, lambda x: kernel.matmul(x, x, x), phi):
        with pytest.raises(ParameterError, match=r"nu must be 0\.5, 1\.5 or 2\.5"):
            call(x)
        with torch.no_grad():
            assert_allclose(call(x), call(X))
    jax = pytest.importorskip("jax")
    with pytest.raises(ParameterError, match=r"nu must be 0\.5, 1\.5 or 2\.5"):
        jax.jit(kernel)(jax.numpy.asarray(X))
