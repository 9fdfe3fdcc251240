"""Laws of rows: marginals, and unbiasedness in every direction."""

import numpy as np
import pytest
from scipy import stats

from structured import DIRECTIONS, NORMAL, QUASI, D, redraws, z_score


@pytest.mark.statistical
@pytest.mark.parametrize("name", NORMAL)
def test_every_row_is_standard_normal(name):
    d, m = (7, 8) if "fastfood" in name else (8, 16 if "antithetic" in name else 8)
    omega = redraws(name, m, d, 400 if name in QUASI else 1500)
    assert np.abs(z_score(omega, 0.0)).max() < 4.5
    assert np.abs(z_score(omega[..., :, None] * omega[..., None, :], np.eye(d))).max() < 4.5
    for row in (0, 1, m - 1):
        assert stats.kstest(np.sum(omega[:, row] ** 2, axis=-1), stats.chi2(d).cdf).pvalue > 1e-5
        for values in (omega[:, row, 0], omega[:, row] @ np.full(d, d**-0.5)):
            assert stats.kstest(values, stats.norm.cdf).pvalue > 1e-5


def terms(name, count, direction):
    """exp(w.s) and cos(w.s) over their means for w ~ N(0, I), averaged over the rows of a block, (count,) each."""
    u = redraws(name, 2 * D if "antithetic" in name else D, D, count, 4) @ direction
    return np.mean(np.exp(u - 0.5), axis=-1), np.mean(np.cos(u) * np.exp(0.5), axis=-1)


@pytest.mark.statistical
@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize("name", NORMAL)
def test_unbiased_in_every_direction(name, direction):
    for samples in terms(name, 400 if name in QUASI else 3000, direction):
        assert abs(z_score(samples, 1.0)) < 4.5
