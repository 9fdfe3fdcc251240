"""A kernel of a user's own derives from public names alone, and is then like those of the package."""

from dataclasses import dataclass

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from laws import arrays

K = ka.kernels


@dataclass(frozen=True)
class Exponential(K.Stationary):
    r""":math:`e^{-|x - y|}`."""

    lengthscale: float = 1.0

    def _evaluate(self, rows: K.Rows):
        return rows.xp.exp(-rows.distance())


@pytest.mark.parametrize("lengthscale", [2.0, (0.5, 1.0, 3.0)])
def test_it_is_the_matern_kernel_of_order_one_half(lengthscale):
    x, y = arrays(1, (9, 3), (7, 3), dtype="float64")
    own, peer = Exponential(lengthscale), K.Matern(0.5, lengthscale)
    np.testing.assert_allclose(own(x, y), peer(x, y), rtol=1e-12)
    np.testing.assert_allclose(own.pairs(x[:7], y), peer.pairs(x[:7], y), rtol=1e-12)
    assert own.of_scaled() == Exponential(1.0)


def test_its_lengthscales_are_checked():
    with pytest.raises(ParameterError, match="lengthscale must be a positive finite number"):
        Exponential(0.0)
    with pytest.raises(ShapeError, match="lengthscale has 2 entries"):
        Exponential((1.0, 2.0))(np.zeros((4, 3)))


def exponential(rows):
    """Return e^{-|x - y|}."""
    return rows.xp.exp(-rows.distance())


def cauchy(rng, shape):
    """Return its frequencies."""
    return rng.standard_normal(shape) / np.abs(rng.standard_normal((shape[0], 1)))


def test_a_function_is_a_kernel():
    x, y = arrays(1, (9, 3), (7, 3), dtype="float64")
    own, scaled, peer = K.from_function(exponential), K.from_function(exponential, lengthscale=2.0), K.Matern(0.5, 2.0)
    for kernel, factor in ((own, 0.5), (scaled, 1.0)):
        np.testing.assert_allclose(kernel(factor * x, factor * y), peer(x, y), rtol=1e-12)
        np.testing.assert_allclose(kernel.pairs(factor * x[:7], factor * y), peer.pairs(x[:7], y), rtol=1e-12)
    features = [ka.features.nystrom(x, kernel, 9, rng=0)(x) for kernel in (scaled, peer)]
    np.testing.assert_allclose(*features, atol=1e-9)
    assert scaled == K.from_function(exponential, lengthscale=2.0) != own
    assert ka.kernel_attention(x, y, y, K.from_function(exponential, signed=False)).shape == (9, 3)
    with pytest.raises(ParameterError, match="nor one of from_function with signed=False"):
        ka.kernel_attention(x, y, y, own)


def test_frequencies_of_ones_own_are_drawn_and_tested(tmp_path):
    kernel = K.from_function(exponential, frequencies=cauchy, lengthscale=2.0)
    phi = ka.random_features(kernel, 3, 16, projection="iid", rng=0)
    assert ka.metrics.certify(phi, rng=0).passed
    product = ka.random_features(kernel * K.Gaussian(), 3, 64, projection="iid", rng=0)  # whose frequencies add
    np.testing.assert_allclose(
        product.mean(np.eye(3), -np.eye(3)), (kernel * K.Gaussian()).pairs(np.eye(3), -np.eye(3))
    )
    wrong = K.from_function(exponential, frequencies=lambda rng, shape: rng.standard_normal(shape))
    assert not ka.metrics.certify(ka.random_features(wrong, 3, 16, projection="iid", rng=0), rng=0).passed
    with pytest.raises(ParameterError, match="cannot be saved"):
        phi.save(tmp_path / "map.npz")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"function": 3}, ParameterError, "function must be callable; got 3"),
        ({"frequencies": 3}, ParameterError, "frequencies must be callable; got 3"),
        ({"lengthscale": 0.0}, ParameterError, "lengthscale must be a positive"),
        ({"signed": 1}, ParameterError, "signed must be"),
        ({}, ParameterError, "or from_function with frequencies"),
        ({"lengthscale": 1.0}, ParameterError, "or from_function with frequencies"),
        (
            {"function": lambda rows: 2 * exponential(rows), "frequencies": cauchy},
            ParameterError,
            "must be 1 where x = y",
        ),
        ({"frequencies": lambda rng, shape: np.zeros(shape[1])}, ShapeError, r"must give \(m, d\) = \(4, 3\)"),
        ({"frequencies": lambda rng, shape: np.full(shape, np.inf)}, ParameterError, "must give finite numbers"),
    ],
)
def test_what_is_no_kernel_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        ka.random_features(K.from_function(**{"function": exponential} | given), 3, 8, projection="iid", rng=0)


def test_a_matrix_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"the kernel of rows, \(4, 4\); got \(4, 3\)"):
        K.from_function(lambda rows: rows.x)(np.zeros((4, 3)))
