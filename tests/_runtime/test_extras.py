"""Progress bars: asked for by True, False or None, and by nothing else."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError

X, PHI = np.random.default_rng(0).standard_normal((20, 2)), ka.features.elu1()
DRAWN = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=4, rng=0)


def blocks():
    raise AssertionError("blocks were walked")
    yield X


CALLS = {
    "accumulate": lambda progress: ka.solvers.accumulate(blocks(), PHI, progress=progress),
    "cg": lambda progress: ka.solvers.kernel_ridge(
        X, X[:, 0], ka.kernels.Gaussian(), num_landmarks=5, penalty=0.1, progress=progress, rng=0
    ),
    "logistic": lambda progress: ka.solvers.logistic(blocks, PHI, penalty=1.0, progress=progress),
    "transform_file": lambda progress: ka.features.transform_file("none.npy", "none.csv", PHI, progress=progress),
    "tune": lambda progress: ka.solvers.tune(X, X[:, 0], DRAWN, progress=progress),
}


@pytest.mark.parametrize("progress", [3, 1, 0.0, "yes", np.ones(1)])
@pytest.mark.parametrize("call", CALLS)
def test_anything_else_is_refused_before_any_work(call, progress):
    with pytest.raises(ParameterError, match="progress must be True, False or None; got"):
        CALLS[call](progress)


def test_booleans_of_numpy():
    assert ka.solvers.accumulate([X], PHI, progress=np.False_).n == 20
