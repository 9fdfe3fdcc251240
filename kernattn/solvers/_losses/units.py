"""Penalties where weights and targets are in units."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.units import unit_of
from kernattn.errors import ParameterError

LEAST, MOST = 1e-305, 1e290  # penalties of less or more, in these units, give the same fits as these
FLOATS = np.finfo(np.float64)
UNTOLD, FAINT = 1.0, 1e-10  # penalties of rows that tell none: as it is, and at least, of the sums over rows
SINGLE = 2.0**-16, 2.0**16  # sizes of weights, of whose products with features float32 holds squares


def unit_of_weights(weights: Float64) -> float:
    """Return a power of four near the largest weight; 1 where float32 takes weights as they are."""
    return unit_of(weights, SINGLE)


def penalty_in_units(penalty: float, weights: float, targets: float = 1.0) -> float:
    """Return the penalty of weights and targets in these units, or the nearest that gives the same fit."""
    if weights == targets == 1:
        return penalty
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(np.float64(penalty) / weights * targets, LEAST, MOST))


def unit_of_features(features: Float64) -> float:
    """Return a power of four near the largest feature; 1 where float32 holds them, and their squares, as they are."""
    return unit_of(features, SINGLE)


def penalty_of_units(penalty: float, weights: float, targets: float = 1.0, features: float = 1.0) -> float:
    """Return the penalty that is so much in these units, or the nearest float above 0."""
    with np.errstate(over="ignore", under="ignore"):
        size = np.float64(penalty) * weights / targets * features * features
        return float(np.clip(size, FLOATS.tiny, FLOATS.max))


def untold_penalty(weights: Float64, by: float, size: float, curvature: float = 1.0, features: float = 1.0) -> float:
    """Return, in these units, the penalty of rows that tell none: 1, times a curvature of targets that have a unit.

    A weight of k is k copies, which leave it as it is. But it is not so small that rounding hides it beside the trace
    of a Hessian, the sum over rows of `size`.
    """
    mean = float(weights.mean())
    with np.errstate(under="ignore"):
        return max(UNTOLD * curvature * min(1.0 / by, mean) / features / features, FAINT * size * mean * len(weights))


def refuse_penalty(penalty: float, trace: float, unit: float) -> ParameterError:
    """Return the error for a penalty that is lost beside a Hessian of such a trace, told in units of the caller."""
    with np.errstate(over="ignore", under="ignore"):
        rounding, penalty = np.float64(FLOATS.eps * trace) * unit, np.float64(penalty) * unit
    return ParameterError(
        f"penalty must be well above the rounding of the sums over rows, {rounding:.3g}; got {penalty:g}"
    )
