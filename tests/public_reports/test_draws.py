"""Functions that are drawn from the posterior of a Gaussian process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from public_reports import dense

S, KERNEL = ka.solvers, ka.kernels.Gaussian(0.7)


@pytest.mark.statistical
@pytest.mark.parametrize("count", [1, 2000])
def test_draws_at_the_data_have_its_targets(count):
    """meta-pytorch/botorch#2337: targets given for the update of drawn functions were ignored."""
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-2, 2, (40, 1)), np.linspace(-3, 3, 7)[:, None]
    y = np.sin(2 * x[:, 0])
    phi = ka.features.nystrom(x, KERNEL, 20, rng=0)
    process = S.gp(S.moments(x, phi, y=y), noise=0.1, amplitude=1.0)
    found = process.draw(count, data=(x, 5 - y), rng=0)(new)
    k, across = (dense.gaussian(a, x, 0.7) for a in (x, new))
    mean, variance, _ = dense.process(k, across, np.ones(7), 5 - y, 0.1)
    assert np.max(np.abs(found.mean(axis=1) - mean) / np.sqrt(variance / count)) < 4.5
    if count > 1:
        assert_allclose(found.var(axis=1), variance, rtol=4.5 * (2 / count) ** 0.5)


def test_draws_at_many_rows_have_the_variance():
    """cornellius-gp/gpytorch#1742: the more rows were asked for, the less did drawn functions vary."""
    x, y = np.array([[-1.0], [1.0]]), np.array([0.0, 1.0])
    phi = ka.features.nystrom(x, KERNEL, landmarks=x)
    process = S.gp(S.moments(x, phi, y=y), noise=0.3, amplitude=1.0)
    new = np.linspace(-3, 3, 3000)[:, None]
    functions = process.draw(400, rng=1)
    found = functions(new)
    assert_allclose(found[::500], functions(new[::500]), atol=1e-8)
    assert_allclose(found.var(axis=1), process.variance(new), rtol=4.5 * (2 / 400) ** 0.5)
