"""Sobol and Halton points: how evenly they fill the cube."""

import numpy as np
import pytest
from scipy import special
from scipy.stats import qmc

import kernattn as ka
from kernattn import errors

P = ka.projections


@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_sobol_is_stratified(k):
    """Of 2^k points one lies in each of 2^k intervals, along every axis."""
    cells = np.floor(special.ndtr(P.Sobol().draw(2**k, 6, k)) * 2**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells, axis=0), np.arange(2**k)[:, None] + np.zeros(6, int))


@pytest.mark.parametrize(("m", "d"), [(64, 5), (50, 5), (16, 19), (1, 2)])
def test_scrambled_sobol_keeps_every_box(m, d):
    """Lower triangular scrambling permutes the dyadic boxes of every two coordinates, whatever their sides."""
    sequence = qmc.Sobol(d, scramble=False, bits=52).random_base2((m - 1).bit_length())[:m]
    scrambled = P.Sobol()._points(m, d, np.random.default_rng(m))
    for one, other in ((0, 1), (1, d - 1), (d - 2, d - 1)):
        for i, j in ((1, 5), (3, 3), (4, 2)):
            ours, theirs = (
                np.unique(
                    np.floor(points[:, one] * 2**i) * 2**j + np.floor(points[:, other] * 2**j), return_counts=True
                )
                for points in (scrambled, sequence)
            )
            np.testing.assert_array_equal(np.sort(ours[1]), np.sort(theirs[1]))


def test_scrambled_digits_are_fair():
    """Every digit of every point is 1 in half of the redraws, and so is the sum of one digit of two points."""
    rng = np.random.default_rng(0)
    drawn = np.stack([P.Sobol()._points(8, 3, rng) for _ in range(2000)]) * 2**52  # (R, m, d)
    digits = drawn.astype(np.uint64)[..., None] >> np.arange(0, 52, dtype=np.uint64) & np.uint64(1)
    apart = digits[:, 1:] ^ digits[:, :1]
    assert np.abs(digits.mean(axis=0) - 0.5).max() < 5 * 0.5 / 2000**0.5
    assert np.abs(apart[..., :49].mean(axis=0) - 0.5).max() < 5 * 0.5 / 2000**0.5  # leading digits are never shared


@pytest.mark.parametrize(("axis", "base", "k"), [(0, 2, 6), (1, 3, 4), (2, 5, 3), (4, 11, 2)])
def test_halton_is_stratified(axis, base, k):
    cells = np.floor(special.ndtr(P.Halton().draw(base**k, 5, 1)[:, axis]) * base**k).astype(int)
    np.testing.assert_array_equal(np.sort(cells), np.arange(base**k))


def test_one_quasi_random_row():
    x = np.ones((2, 6)) / 4
    one, other = (ka.random_features(ka.kernels.Gaussian(), 6, 2, "trigonometric", p, rng=0) for p in ("sobol", "iid"))
    np.testing.assert_allclose(one.variance(x, 2 * x), other.variance(x, 2 * x))


def test_sobol_has_a_table_of_dimensions():
    with pytest.raises(errors.ParameterError, match="d must be below 21201 for Sobol points"):
        P.Sobol().draw(3, 21201)
