"""Chains of Hadamard transforms: orthogonal rows of signs, unbiased but for what is measured."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import DIRECTIONS, SPECS, D, blocks_of, redraws, unit, z_score

P = ka.projections

BIASED = [  # relative bias of the Gaussian kernel at |x - y| = 1, d = 16, as the docstrings have it
    (P.Hadamard(chains=1), "axis", -0.102),
    (P.Hadamard(chains=2), "axis", 0.0095),
    (P.Hadamard(), "axis", -0.0015),
    (P.Hadamard(), "diagonal", 0.0),
    (P.Hadamard(), "random", 0.0),
]


@pytest.mark.parametrize(("name", "d"), [("hadamard", 8), ("hadamard 1", 8)])
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
@pytest.mark.parametrize("name", ["hadamard", "hadamard 1"])
def test_linear_kernels_are_unbiased_all_the_same(name):
    """E w w^T = I, padded or not."""
    for d, m in ((8, 8), (6, 24)):
        omega = redraws(name, m, d, 1500)
        products = np.mean(omega[..., :, None] * omega[..., None, :], axis=1)
        spread = products.std(axis=0) / np.sqrt(1500)
        assert (np.abs(products.mean(axis=0) - np.eye(d)) <= 4.5 * spread + 1e-12).all()


@pytest.mark.statistical
def test_one_chain_is_rows_of_signs():
    """With constant norms every entry is a fair sign: E cos w.s is a product of cosines."""
    s = np.array([0.5, -0.7, 0.2, 0.9, 0.1, 0.6])
    omega = redraws("hadamard 1", 8, 6, 4000)
    np.testing.assert_allclose(np.abs(omega), 1.0, rtol=1e-12)
    assert abs(z_score(np.mean(np.cos(omega @ s), axis=-1), np.prod(np.cos(s)))) < 4.5


@pytest.mark.parametrize("number", [0, 1.0, "9", None], ids=repr)
def test_chains_are_counted(number):
    with pytest.raises(errors.ParameterError, match=f"chains must be a positive integer.*{number!r}"):
        P.hadamard(4, 4, chains=number)
