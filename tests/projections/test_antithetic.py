"""Rows and their opposites."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors

P = ka.projections


@pytest.mark.parametrize("base", [P.Iid(), P.Orthogonal(), P.Simplex(norms="coupled"), P.Sobol()], ids=repr)
def test_antithetic_rows_are_those_of_the_base(base):
    omega = P.Antithetic(base).draw(14, 5, 3)
    np.testing.assert_array_equal(omega[::2], base.draw(7, 5, 3))
    np.testing.assert_array_equal(omega[1::2], -omega[::2])
    assert P.Antithetic(base).blocks(14, 5) == tuple(2 * size for size in base.blocks(7, 5))


@pytest.mark.parametrize("base", [P.Iid(), P.Orthogonal(), P.Simplex(norms="coupled")], ids=repr)
def test_antithetic_positive_features_are_hyperbolic(base):
    kernel, rng = ka.kernels.Softmax(), np.random.default_rng(2)
    x, y = rng.standard_normal((2, 7, 6)) / 2
    positive = ka.random_features(kernel, 6, 16, "positive", P.Antithetic(base), rng=1)
    hyperbolic = ka.random_features(kernel, 6, 16, "hyperbolic", base, rng=1)
    np.testing.assert_allclose(np.sort(positive(x)), np.sort(hyperbolic(x)), rtol=1e-12)
    np.testing.assert_allclose(positive.variance(x, y), hyperbolic.variance(x, y), rtol=1e-9)


@pytest.mark.parametrize("kernel", [ka.kernels.Gaussian(0.8), ka.kernels.Matern(1.5)], ids=repr)
def test_antithetic_cosines_are_copies(kernel):
    x, y = np.random.default_rng(2).standard_normal((2, 7, 6))
    twice = ka.random_features(kernel, 6, 16, "trigonometric", "antithetic", rng=0).variance(x, y)
    once = ka.random_features(kernel, 6, 8, "trigonometric", "orthogonal", rng=0).variance(x, y)
    np.testing.assert_allclose(twice, once, rtol=1e-9)


def test_refusals():
    with pytest.raises(errors.ParameterError, match=r"m must be even for antithetic pairs.*7"):
        P.Antithetic().draw(7, 4)
    with pytest.raises(errors.ParameterError, match="m must be even"):
        ka.random_features(ka.kernels.Softmax(), 4, 7, "positive", "antithetic", rng=0)
    with pytest.raises(errors.ParameterError, match=r"base must be a projection that is not antithetic.*Antithetic"):
        P.Antithetic(P.Antithetic())
    with pytest.raises(errors.DTypeError, match="base must be a Projection; got 'iid'"):
        P.Antithetic(base="iid")
