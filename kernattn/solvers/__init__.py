"""Least squares on features, from sums over rows that add up: on one machine in constant memory, or on many."""

from __future__ import annotations

from kernattn.solvers._accumulate import accumulate
from kernattn.solvers._files import load_moments, save_moments
from kernattn.solvers._folds import CrossValidation, cross_validate
from kernattn.solvers._moments import Moments, initial_moments, merge, moments
from kernattn.solvers._ridge import Ridge, RidgePath, ridge

__all__ = [
    "CrossValidation",
    "Moments",
    "Ridge",
    "RidgePath",
    "accumulate",
    "cross_validate",
    "initial_moments",
    "load_moments",
    "merge",
    "moments",
    "ridge",
    "save_moments",
]


def __dir__() -> list[str]:
    return __all__
