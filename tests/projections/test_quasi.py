"""Sobol and Halton points: how evenly they fill the cube."""

import numpy as np
import pytest
from scipy import special

import kernattn as ka
from kernattn import errors

P = ka.projections


@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_sobol_is_stratified(k):
    """Of 2^k points one lies in each of 2^k intervals, along every axis."""
    cells = np.floor(special.ndtr(P.sobol(2**k, 6, k)) * 2**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells, axis=0), np.arange(2**k)[:, None] + np.zeros(6, int))


@pytest.mark.parametrize(("axis", "base", "k"), [(0, 2, 6), (1, 3, 4), (2, 5, 3), (4, 11, 2)])
def test_halton_is_stratified(axis, base, k):
    cells = np.floor(special.ndtr(P.halton(base**k, 5, 1)[:, axis]) * base**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells), np.arange(base**k))


def test_one_quasi_random_row():
    x = np.ones((2, 6)) / 4
    one, other = (ka.random_features(ka.kernels.Gaussian(), 6, 2, "trigonometric", p) for p in ("sobol", "iid"))
    np.testing.assert_allclose(one.variance(x, 2 * x), other.variance(x, 2 * x))


def test_sobol_has_a_table_of_dimensions():
    with pytest.raises(errors.ParameterError, match="d must be below 21201 for Sobol points"):
        P.sobol(3, 21201)
