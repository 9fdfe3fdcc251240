"""Rows that point to the corners of a simplex."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import SPECS, blocks_of, unit


@pytest.mark.parametrize("d", [2, 3, 7, 64])
@pytest.mark.parametrize("name", ["simplex", "simplex coupled"])
def test_corners_of_a_simplex(name, d):
    for block in blocks_of(SPECS[name], 2 * d + 1, d):
        wanted = np.where(np.eye(len(block)) > 0, 1.0, -1 / (d - 1))
        np.testing.assert_allclose(unit(block) @ unit(block).T, wanted, rtol=0, atol=1e-14)


def test_published_ratios_of_simplices():
    """Reid et al. (2023): variance over that of iid rows at m = d = 64 and |x + y| = 0.5, 1, 2."""
    y = np.zeros((3, 64))
    y[:, 0] = [0.5, 1.0, 2.0]
    simplex, iid = (
        ka.random_features(ka.kernels.Softmax(), 64, 64, "positive", name, rng=0).variance(0 * y, y * 64**0.25)
        for name in ("simplex", "iid")
    )
    np.testing.assert_allclose(simplex / iid, [0.028, 0.171, 0.818], rtol=0.02)


def test_heavy_tails():
    kernel, x = ka.kernels.Matern(1.5), np.ones((2, 6)) / 4
    phi = ka.random_features(kernel, 6, 16, projection="simplex", rng=0)
    with pytest.raises(errors.NoClosedForm, match=r"another than a right angle.*MaternNorms"):
        phi.variance(x, -x)
    with pytest.raises(errors.ParameterError, match=r"'coupled'.*quantiles of chi.*MaternNorms"):
        ka.random_features(kernel, 6, 16, projection=ka.projections.Orthogonal(norms="coupled"), rng=0)


def test_one_dimension_has_none():
    with pytest.raises(errors.ParameterError, match=r"d must be at least 2 for a simplex.*1"):
        ka.projections.Simplex().draw(3, 1)
