"""Old names and old keywords work for one version, and say what to use: of each room its own test_old_names.py."""

import warnings

import numpy as np
import pytest

import kernattn as ka

X = np.random.default_rng(1).standard_normal((20, 2))


def test_an_old_keyword_beside_the_new_one_is_refused():
    moments = ka.solvers.moments(X, ka.features.elu1())
    with pytest.raises(TypeError, match="twice"):
        ka.solvers.pca(moments, k=2, num_components=2)


def test_the_warning_is_at_the_line_of_the_caller():
    """However many of these wrap a function: by default Python shows no other warning of this kind."""
    phi = ka.random_features(ka.kernels.Gaussian(), 2, 8, rng=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ka.solvers.logistic(phi, X, X[:, 0] > 0, ridge=1.0)
        ka.features.nystrom(kernel=ka.kernels.Gaussian(), data=X, num_features=5, landmarks="uniform", rng=0)
        _ = ka.solvers.ridge(ka.solvers.moments(X, phi, y=X)).path(np.ones(2)).ridge
    assert len(caught) == 6
    assert {warning.filename for warning in caught} == {__file__}
