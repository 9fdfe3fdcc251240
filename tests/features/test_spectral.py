"""Random Fourier features of every kernel with a spectral measure: unbiased, and of the variance that they say."""

from functools import cache

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from laws import arrays
from saved import reloaded
from xp import to_numpy

K, P = ka.kernels, ka.projections
D, M, DRAWS = 3, 6, 5000  # two blocks of orthogonal frequencies a draw
ELL = (0.7, 1.0, 1.8)
ISOTROPIC = {
    "matern-1/2": K.Matern(0.5),
    "matern-3/2": K.Matern(1.5, ELL),
    "matern-0.8": K.Matern(0.8, 1.3),
    "rational_quadratic": K.RationalQuadratic(0.6, ELL),
    "product-isotropic": K.Matern(2.5, ELL) * K.Gaussian(1.5),
}
PRODUCT = {
    "laplacian": K.Laplacian(ELL),
    "cauchy": K.Cauchy(1.5),
    "sech": K.Sech(ELL),
    "periodic": K.Periodic(ELL, 0.9),
    "product-axes": K.Laplacian(3.0) * K.Cauchy(ELL),
    "product-mixed": K.Laplacian(3.0) * K.Matern(1.5),
}
KERNELS = ISOTROPIC | PRODUCT
CELLS = [(name, projection) for name in ISOTROPIC for projection in ("orthogonal", "iid")] + [
    (n, "iid") for n in PRODUCT
]


def pairs():
    """Pairs along an axis, along the diagonal and in any direction, from near to far."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, D))
    step = np.stack(
        [0.4 * np.eye(D)[0], np.ones(D) / 2, np.ones(D), rng.standard_normal(D), 3 * rng.standard_normal(D)]
    )
    return x, x + step


@cache
def many(name, projection, estimator):
    """A map of DRAWS times the frequencies: its blocks are as good as redraws."""
    each = 2 if estimator == "trigonometric" else 1
    return ka.random_features(KERNELS[name], D, each * M * DRAWS, estimator, projection, rng=7)


def far_from_chance(estimates, wanted):
    """|z| of the mean over draws, an array of pairs."""
    return np.abs(estimates.mean(axis=0) - wanted) / (estimates.std(axis=0) / np.sqrt(len(estimates)))


def check_moments(estimates, mean, variance):
    """|z| < 4.5 for mean and variance of (draws, pairs)."""
    assert (far_from_chance(estimates, mean) < 4.5).all()
    assert (far_from_chance((estimates - estimates.mean(axis=0)) ** 2, variance) < 4.5).all()


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "projection"), CELLS)
def test_mean_and_variance(name, projection):
    kernel, (x, y) = KERNELS[name], pairs()
    for estimator in ("trigonometric", "phase"):
        phi = ka.random_features(kernel, D, 2 * M if estimator == "trigonometric" else M, estimator, projection, rng=0)
        mean, variance = phi.mean(x, y), phi.variance(x, y)
        np.testing.assert_allclose(mean, kernel.pairs(x, y), rtol=1e-12)
        np.testing.assert_allclose(phi.bias(x, y), 0, atol=1e-12)
        drawn = many(name, projection, estimator)
        c = kernel.input_scale(D)
        u, v = drawn.omega @ (c * x).T, drawn.omega @ (c * y).T  # (m draws, pairs)
        if estimator == "trigonometric":
            terms = np.cos(u - v)
        else:
            terms = 2 * np.cos(u + drawn.phase[:, None]) * np.cos(v + drawn.phase[:, None])
        check_moments(terms.reshape(DRAWS, M, -1).mean(axis=1), mean, variance)


@pytest.mark.parametrize("name", KERNELS)
def test_iid_variance_from_the_kernel_at_twice_the_difference(name):
    kernel, (x, y) = KERNELS[name], pairs()
    k, double = kernel.pairs(x, y), kernel.pairs(2 * x, 2 * y)
    variance = {
        e: ka.random_features(kernel, D, 12, e, "iid", rng=0).variance(x, y) for e in ("trigonometric", "phase")
    }
    np.testing.assert_allclose(variance["trigonometric"], ((1 + double) / 2 - k**2) / 6, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(variance["phase"], (1 + double / 2 - k**2) / 12, rtol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_features_are_those_of_the_frequencies(name, xp):
    phi = ka.random_features(KERNELS[name], D, 8, projection="iid", rng=3)
    (x,) = arrays(1, (2, 5, D))
    u = (x * KERNELS[name].input_scale(D)) @ phi.omega.T
    got = to_numpy(phi(xp.asarray(x)))
    reach = 1 + np.abs(u).max()  # the frequencies of heavy tails are large, and so is their product's rounding
    np.testing.assert_allclose(got, np.concatenate([np.cos(u), np.sin(u)], axis=-1) / 2, atol=4e-7 * reach)


@pytest.mark.parametrize("name", KERNELS)
def test_redraw_and_files(name, tmp_path):
    phi = ka.random_features(KERNELS[name], D, 7, projection="iid", rng=3)  # odd: one cosine a frequency
    assert type(phi) is ka.features.Phase
    (x,) = arrays(1, (5, D), dtype="float64")
    a, b = phi.redraw(4), phi.redraw(4)
    np.testing.assert_array_equal(a(x), b(x))
    assert a.fingerprint != phi.fingerprint
    again = reloaded(phi, tmp_path, x)
    assert again.kernel == KERNELS[name]
    np.testing.assert_array_equal(again.variance(x, x[::-1]), phi.variance(x, x[::-1]))


@pytest.mark.parametrize("name", ["matern-3/2", "rational_quadratic"])
def test_constant_norms_estimate_another_kernel(name):
    """E cos w.(x - y) over the sphere of radius sqrt(3) is a sine cardinal, whatever the kernel was."""
    kernel, (x, y) = KERNELS[name], pairs()
    phi = ka.random_features(kernel, D, 12, "trigonometric", P.Orthogonal(norms="sqrt_d"), rng=0)
    z = np.linalg.norm((x - y) * kernel.input_scale(D), axis=-1)
    wanted = np.sinc(np.sqrt(3) * z / np.pi)
    np.testing.assert_allclose(phi.mean(x, y), wanted, atol=1e-12)
    np.testing.assert_allclose(phi.bias(x, y), wanted - kernel.pairs(x, y), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(phi.omega, axis=1), np.sqrt(3), rtol=1e-12)


@pytest.mark.parametrize("name", ["matern-3/2", "rational_quadratic"])
def test_orthogonal_frequencies_are_orthogonal_with_the_kernels_norms(name):
    phi = ka.random_features(KERNELS[name], D, 12, "trigonometric", rng=0)
    gram = phi.omega[:D] @ phi.omega[:D].T
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12 * np.trace(gram))


@pytest.mark.parametrize("kernel", [*PRODUCT.values(), K.SkewedChi2()], ids=repr)
@pytest.mark.parametrize("projection", ["orthogonal", P.Iid(norms="sqrt_d")], ids=str)
def test_axes_drawn_one_by_one_take_no_other_arrangement(kernel, projection):
    with pytest.raises(ParameterError, match=r"projection must be 'iid' .* axis by axis"):
        ka.random_features(kernel, D, 8, projection=projection, rng=0)


@pytest.mark.parametrize(
    "kernel", [K.Matern(1.5), K.RationalQuadratic(), K.SkewedChi2(), K.Gaussian() * K.Matern()], ids=repr
)
@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "optimal_positive", "arccosine", "exact"])
def test_estimators_of_other_kernels_are_refused(kernel, estimator):
    with pytest.raises(ParameterError, match=r"estimator must be 'auto' or one of trigonometric, phase for .*; got "):
        ka.random_features(kernel, D, 8, estimator, "iid", rng=0)


def test_auto():
    for kernel in (K.Matern(), K.RationalQuadratic(), K.Matern() * K.Gaussian()):
        assert type(ka.random_features(kernel, D, 8, rng=0)) is ka.features.Trigonometric
        assert type(ka.random_features(kernel, D, 9, rng=0)) is ka.features.Phase
        data = np.random.default_rng(0).standard_normal((20, D))
        assert type(ka.random_features(kernel, D, 8, data=data, rng=0)) is ka.features.Trigonometric
        with pytest.raises(ParameterError, match="even; got 9"):
            ka.random_features(kernel, D, 9, "trigonometric", rng=0)


def test_lengthscales_of_another_dimension_are_refused():
    with pytest.raises(ShapeError, match="3 entries"):
        ka.random_features(K.Matern(1.5, ELL), 4, 8, rng=0)
