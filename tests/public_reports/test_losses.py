"""Huber's loss and quantiles: units, and targets that are far from all others."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka

S = ka.solvers
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (300, 1))
CURVE = np.sin(3 * X[:, 0])
PHI = ka.random_features(ka.kernels.Gaussian(0.7), 1, 32, rng=0)


@pytest.mark.parametrize("unit", [1e-30, 1e-8, 1e8, 1e20])
@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_the_unit_of_targets_has_no_part(loss, unit):
    """scikit-learn/scikit-learn#27777: whether Huber's fit converged was a matter of magnitude."""
    y = CURVE + RNG.exponential(1, 300)
    once, fit = (S.linear_model(X, PHI, y=each, loss=loss, quantile=0.8) for each in (y, unit * y))
    assert once.converged
    assert fit.converged
    assert_allclose(fit.penalty * unit, once.penalty, rtol=1e-6)
    assert_allclose(fit.predict(X) / unit, once.predict(X), atol=1e-6)


@pytest.mark.parametrize("far", [1e3, 1e12, -1e30])
@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_a_far_target_pulls_no_harder_than_a_nearer_one(loss, far):
    """mhardcastle/ddf-pipeline#242: Huber's fit to fluxes that lie far apart had not converged, and was lost."""
    y = CURVE + 0.1 * RNG.standard_normal(300)
    near = y.copy()
    near[7], y[7] = np.copysign(20.0, far), far
    expected = S.linear_model(X, PHI, y=near, loss=loss, penalty=0.3, tolerance=1e-9).predict(X)
    fit = S.linear_model(X, PHI, y=y, loss=loss, penalty=0.3)
    assert fit.converged
    assert_allclose(fit.predict(X), expected, atol=5e-3)
    chosen = S.linear_model(X, PHI, y=y, loss=loss)
    assert np.sqrt(np.mean((chosen.predict(X) - CURVE) ** 2)) < 0.05


def test_a_far_target_does_not_choose_the_lengthscale():
    """mhardcastle/ddf-pipeline#242: nor does an estimator choose its kernel by such a target."""
    estimators = pytest.importorskip("kernattn.sklearn")
    y = CURVE + 0.1 * RNG.standard_normal(300)
    y[7] = 1e12
    model = estimators.FeatureRegressor(num_features=64, random_state=0).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - CURVE) ** 2)) < 0.06
