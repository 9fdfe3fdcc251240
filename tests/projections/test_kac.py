"""Kac walks: orthogonal rows by random rotations, uniform only after enough of them."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import DIRECTIONS, SPECS, D, blocks_of, redraws, unit

P = ka.projections

BIASED = [  # relative bias of the Gaussian kernel at |x - y| = 1, d = 16, as the docstrings have it
    (P.Kac(steps=45), "axis", 0.111),
    (P.Kac(steps=89), "axis", 0.0215),
    (P.Kac(), "axis", 0.0),
    (P.Kac(), "diagonal", 0.0),
    (P.Kac(), "random", 0.0),
]


@pytest.mark.parametrize(("name", "d"), [("kac", 7), ("kac 5", 7), ("kac", 1)])
def test_rows_of_a_block_are_orthogonal(name, d):
    for block in blocks_of(SPECS[name], 2 * d + 1, d):
        np.testing.assert_allclose(unit(block) @ unit(block).T, np.eye(len(block)), rtol=0, atol=1e-14)


@pytest.mark.statistical
@pytest.mark.parametrize(("spec", "direction", "bias"), BIASED)
def test_measured_bias(spec, direction, bias):
    u = spec.draw(4000 * D, D, 6).reshape(4000, D, D) @ DIRECTIONS[direction]
    samples = np.mean(np.cos(u) * np.exp(0.5), axis=-1) - 1
    assert abs(samples.mean() - bias) < 0.001 + 4.5 * samples.std() / np.sqrt(4000)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["kac", "kac 5"])
def test_linear_kernels_are_unbiased_all_the_same(name):
    """E w w^T = I, padded or not."""
    for d, m in ((8, 8), (6, 24)):
        omega = redraws(name, m, d, 1500)
        products = np.mean(omega[..., :, None] * omega[..., None, :], axis=1)
        spread = products.std(axis=0) / np.sqrt(1500)
        assert (np.abs(products.mean(axis=0) - np.eye(d)) <= 4.5 * spread + 1e-12).all()


@pytest.mark.parametrize("number", [0, 1.0, "9"], ids=repr)
def test_steps_are_counted(number):
    with pytest.raises(errors.ParameterError, match=f"steps must be a positive integer.*{number!r}"):
        P.kac(4, 4, steps=number)
