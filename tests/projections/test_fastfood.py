"""Fastfood: rows cut from a padded dimension."""

import numpy as np
import pytest

import kernattn as ka
from structured import z_score

P = ka.projections


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
def test_padding_with_constant_norms(estimator):
    """Rows are cut from a sphere in p = 8 dimensions: the mean is that of p, not of d = 5."""
    kernel = ka.kernels.Gaussian()
    phi = ka.random_features(kernel, 5, 16, estimator, P.Fastfood(norms="sqrt_d"), rng=0)
    x, y = np.full((1, 5), 0.3), np.full((1, 5), -0.4 if estimator == "trigonometric" else 0.2)
    rng = np.random.default_rng(3)
    maps = (phi.redraw(rng) for _ in range(250))
    samples = np.stack([np.sum(each(x) * each(y), axis=-1) for each in maps])
    assert np.abs(z_score(samples, phi.mean(x, y))).max() < 4.5
