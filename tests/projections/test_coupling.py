"""Norms coupled in pairs."""

import numpy as np
import pytest
from scipy import stats

from kernattn.projections import Pair
from kernattn.projections._coupling import partners
from structured import SPECS, blocks_of


@pytest.mark.parametrize("name", ["orthogonal coupled", "simplex coupled"])
def test_coupled_norms(name):
    """F(r) + F(r') = 1 for rows 0 and 1, 2 and 3, ... of each block; an odd one out is on its own."""
    d = 5
    for block in blocks_of(SPECS[name], 14, d):
        p = stats.chi(d).cdf(np.linalg.norm(block, axis=-1))
        np.testing.assert_allclose(p[: len(p) // 2 * 2].reshape(-1, 2).sum(axis=-1), 1.0, rtol=1e-12)
    assert SPECS[name].pairs(14, d) == {
        Pair(0.0 if "orth" in name else -1 / 4): 20 + 20 + 12 - 12,
        Pair(0.0 if "orth" in name else -1 / 4, "coupled"): 12,
    }


@pytest.mark.parametrize("d", [1, 2, 16, 512])
def test_partners_in_both_tails(d):
    r = stats.chi(d).isf([1e-12, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-9])
    other = partners(r, d)
    np.testing.assert_allclose(stats.chi(d).cdf(other), stats.chi(d).sf(r), rtol=1e-7)
    np.testing.assert_allclose(partners(other, d), r, rtol=1e-6)
