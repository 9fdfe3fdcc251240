"""Least squares on features, from sums over rows that add up: on one machine in constant memory, or on many."""

from __future__ import annotations

from kernattn.solvers._accumulate import accumulate
from kernattn.solvers._files import load_moments, save_moments
from kernattn.solvers._folds import CrossValidation, cross_validate
from kernattn.solvers._gp import EvidenceGradient, GaussianProcess, gp
from kernattn.solvers._moments import Moments, initial_moments, merge, moments
from kernattn.solvers._pca import Components, pca, whiten
from kernattn.solvers._ridge import Ridge, RidgePath, ridge
from kernattn.solvers._sample_tests import SampleTest, hsic, mmd

__all__ = [
    "Components",
    "CrossValidation",
    "EvidenceGradient",
    "GaussianProcess",
    "Moments",
    "Ridge",
    "RidgePath",
    "SampleTest",
    "accumulate",
    "cross_validate",
    "gp",
    "hsic",
    "initial_moments",
    "load_moments",
    "merge",
    "mmd",
    "moments",
    "pca",
    "ridge",
    "save_moments",
    "whiten",
]


def __dir__() -> list[str]:
    return __all__
