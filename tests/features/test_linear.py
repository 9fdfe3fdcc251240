"""The map of a line: its formula, its place beside a kernel's map, files and refusals."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError

X, Y = np.random.default_rng(0).standard_normal((2, 5, 3)) + 1e9
PHI = ka.features.linear([1.0, 2.0, 0.5], [1e9, 1e9, 0.0])


def test_the_formula():
    expected = (X - [1e9, 1e9, 0]) / [1, 2, 0.5]
    np.testing.assert_array_equal(PHI(X), expected)
    np.testing.assert_allclose(PHI.mean(X, Y), np.sum(expected * (Y - [1e9, 1e9, 0]) / [1, 2, 0.5], axis=1))
    assert not PHI.bias(X, Y).any()
    np.testing.assert_array_equal(ka.features.linear([2.0, 1.0, 1.0])(X)[:, 0], X[:, 0] / 2)


def test_a_line_beside_a_kernel_is_a_sum_of_kernels(tmp_path):
    phi = ka.random_features(ka.kernels.Gaussian(1e9), dim=3, num_features=8, rng=0) + 4.0 * PHI
    assert phi(X).shape == (5, 11)
    np.testing.assert_allclose(phi(X)[:, 8:], 2 * PHI(X))
    phi.save(tmp_path / "map.npz")
    again = ka.load(tmp_path / "map.npz")
    assert again.fingerprint == phi.fingerprint
    np.testing.assert_array_equal(again(X), phi(X))


@pytest.mark.parametrize("arguments", [([1.0, 0.0],), ([],), (["a"],), ([1.0], [0.0, 0.0])])
def test_refusals(arguments):
    with pytest.raises((ParameterError, ShapeError), match=r"lengthscale"):
        ka.features.linear(*arguments)
    with pytest.raises(ShapeError):
        PHI(X[:, :2])
