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
