"""Arguments are judged before any work: before features are computed, and before moments are decomposed."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import KernattnError, ParameterError
from kernattn.features import FeatureMap

X = np.random.default_rng(0).standard_normal((30, 2))
Y = X[:, 0] ** 2


@dataclass(frozen=True, eq=False)
class Untouched(FeatureMap):
    """A map whose features nobody may ask for."""

    dim = 2

    def num_features_of(self, dim):
        return dim

    def scaled_query(self, x):
        raise AssertionError("features were computed")

    def redraw(self, rng=None):
        return self


def test_of_rows():
    fit = ka.solvers.ridge(ka.solvers.moments(X, ka.features.elu1(), y=Y), 0.1)
    with pytest.raises(ParameterError, match=r"coverage must be at most 0\.967742 with 30 rows"):
        ka.solvers.jackknife(replace(fit, phi=Untouched()), X, x=X, y=Y, coverage=0.99)
    with pytest.raises(KernattnError, match=r"^new must"):
        ka.solvers.jackknife(replace(fit, phi=Untouched()), X[:0], x=X, y=Y)
    for given, words in (({}, "none"), ({"num_landmarks": 3, "landmarks": X}, "num_landmarks and landmarks")):
        with pytest.raises(ParameterError, match=f"give one of .*; got {words}$"):
            ka.solvers.kernel_ridge(X, Y, ka.kernels.Gaussian(), penalty=0.1, **given)
    with pytest.raises(KernattnError, match="x must have one of the dtypes"):
        ka.solvers.kernel_ridge(X.astype(object), Y, ka.kernels.Gaussian(), penalty=0.1, num_landmarks=3)
    process = ka.solvers.gp(ka.solvers.moments(X, ka.features.elu1(), y=Y), noise=0.1, amplitude=1.0)
    with pytest.raises(ParameterError, match=r"coverage must be at most 0\.967742 with 30 rows"):
        ka.solvers.calibrate(replace(process, phi=Untouched()), x=X, y=Y, coverage=0.99)
    with pytest.raises(KernattnError, match="rng must be"):
        ka.solvers.spectral_clustering(X, Untouched(), 2, rng="seed")
    drawn = ka.random_features(ka.kernels.Gaussian(), 2, 8, rng=0)
    with pytest.raises(ParameterError, match="rng must be"):  # though all rows are taken
        ka.solvers.tune(X, Y, drawn, rng="seed")
    same = np.ones((30, 1))  # is refused once columns are looked at
    with pytest.raises(KernattnError, match="rng must be"):
        ka.solvers.conditional_hsic(same, same, same, rng="seed")


@pytest.mark.parametrize("solver", [ka.solvers.pca, ka.solvers.whiten])
def test_of_moments(solver):
    """Moments of no rows are refused by the decomposition."""
    with pytest.raises(ParameterError, match="num_components must be a positive integer"):
        solver(ka.solvers.initial_moments(ka.features.elu1(), dim=2), 0)


def test_of_a_process():
    """Moments of no rows, once more."""
    with pytest.raises(ParameterError, match="noise must be positive"):
        ka.solvers.gp(ka.solvers.initial_moments(ka.features.elu1(), dim=2, targets=0), noise=-1.0)
