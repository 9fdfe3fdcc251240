"""Solvers take a backend wherever they make features, as every function that an op stands behind."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import BackendUnavailable

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(80)
LABELS = np.digitize(X[:, 1], [-0.5, 0.5])
PHI = ka.random_features(ka.kernels.Gaussian(2.0), 3, 24, "positive", rng=0)
MOMENTS = ka.solvers.moments(X, PHI, y=Y, backend="reference")
RIDGE, GP = ka.solvers.ridge(MOMENTS, 0.1), ka.solvers.gp(MOMENTS, noise=0.1, amplitude=1.0)
LOGISTIC = ka.solvers.logistic(X, PHI, y=LABELS, penalty=0.1, backend="reference")
CLUSTERS = ka.solvers.spectral_clustering(X, PHI, 3, backend="reference", rng=0)
PCA = ka.solvers.pca(MOMENTS, 4)
CALLS = {
    "moments": lambda backend: ka.solvers.moments(X, PHI, y=Y, backend=backend).gram,
    "accumulate": lambda backend: ka.solvers.accumulate([(X, Y)], PHI, backend=backend).gram,
    "logistic": lambda backend: ka.solvers.logistic(X, PHI, y=LABELS, penalty=0.1, backend=backend).weights,
    "ridge.predict": lambda backend: RIDGE.predict(X, backend=backend),
    "ridge.leverage": lambda backend: RIDGE.leverage(X, backend=backend),
    "gp.mean": lambda backend: GP.mean(X, backend=backend),
    "gp.variance": lambda backend: GP.variance(X, backend=backend),
    "logistic.scores": lambda backend: LOGISTIC.scores(X, backend=backend),
    "logistic.predict_proba": lambda backend: LOGISTIC.predict_proba(X, backend=backend),
    "logistic.predict": lambda backend: LOGISTIC.predict(X, backend=backend),
    "spectral_clustering.predict": lambda backend: CLUSTERS.predict(X, backend=backend),
    "pca.transform": lambda backend: PCA.transform(X, backend=backend),
}


@pytest.mark.parametrize("name", CALLS)
def test_backends_agree_and_one_that_cannot_run_is_refused(name):
    call = CALLS[name]
    np.testing.assert_allclose(call("reference"), call(None), rtol=1e-6, atol=1e-9)
    with pytest.raises(BackendUnavailable):
        call("gpu")


def test_a_smaller_tolerance_takes_more_steps():
    fits = [
        ka.solvers.logistic(X, PHI, y=LABELS, penalty=0.1, tolerance=tolerance) for tolerance in (1e-1, 1e-4, 1e-12)
    ]
    steps = [fit.iterations for fit in fits]
    assert steps == sorted(set(steps))
    far, near = (np.max(np.abs(fit.weights - fits[2].weights)) for fit in fits[:2])
    assert 0 < near < far
