"""Least squares on features, from sums over rows that add up: on one machine in constant memory, or on many.

Arguments that do not fit raise before any work: DTypeError, ShapeError, EmptyInputError, MixedLibraryError,
BackendUnavailable, ParameterError of numbers out of range and of rows that hold NaN or infinity, StateMismatchError of
moments that are of different draws of a map. A bar of `progress` takes tqdm, else MissingExtra is raised.
"""

from __future__ import annotations

from kernattn._runtime.deprecated import old_names
from kernattn.solvers._accumulate import accumulate
from kernattn.solvers._calibrate import calibrate
from kernattn.solvers._draws import Draws
from kernattn.solvers._files import load_moments, save_moments
from kernattn.solvers._folds import CrossValidation, cross_validate
from kernattn.solvers._gp import EvidenceGradient, GaussianProcess, gp
from kernattn.solvers._gp_functions import Prediction, log_evidence, predict
from kernattn.solvers._hypotheses.conditional import conditional_hsic
from kernattn.solvers._hypotheses.on_moments import SampleTest, hsic, mmd
from kernattn.solvers._jackknife import Interval, jackknife
from kernattn.solvers._kernel_ridge import KernelRidge, kernel_ridge
from kernattn.solvers._losses.linear_model import LinearModel, linear_model
from kernattn.solvers._losses.logistic import Logistic, logistic
from kernattn.solvers._metric import Metric, learn_metric
from kernattn.solvers._moments import Moments, initial_moments
from kernattn.solvers._pca import Components, pca, whiten
from kernattn.solvers._ridge import Ridge, RidgePath, ridge
from kernattn.solvers._spectral_clustering import SpectralClusters, spectral_clustering
from kernattn.solvers._sums import moments
from kernattn.solvers._tune import Tuned, tune

__all__ = [
    "Components",
    "CrossValidation",
    "Draws",
    "EvidenceGradient",
    "GaussianProcess",
    "Interval",
    "KernelRidge",
    "LinearModel",
    "Logistic",
    "Metric",
    "Moments",
    "Prediction",
    "Ridge",
    "RidgePath",
    "SampleTest",
    "SpectralClusters",
    "Tuned",
    "accumulate",
    "calibrate",
    "conditional_hsic",
    "cross_validate",
    "gp",
    "hsic",
    "initial_moments",
    "jackknife",
    "kernel_ridge",
    "learn_metric",
    "linear_model",
    "load_moments",
    "log_evidence",
    "logistic",
    "mmd",
    "moments",
    "pca",
    "predict",
    "ridge",
    "save_moments",
    "spectral_clustering",
    "tune",
    "whiten",
]


def __dir__() -> list[str]:
    return __all__


__getattr__ = old_names(
    __name__,
    {"cg": "kernattn.solvers._old.cg", "merge": ("a + b", lambda a, b: a + b)},
    calls={"cg": "kernattn.solvers.kernel_ridge(x, y, kernel, penalty=, num_landmarks=)"},
)
