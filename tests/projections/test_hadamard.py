"""Chains of Hadamard transforms: orthogonal rows of signs, unbiased but for what is measured."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import redraws, z_score

P = ka.projections


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
        P.Hadamard(chains=number)
