"""Powers of two in which weights, targets and penalties are of a size whose squares float64 holds."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import ParameterError

LEAST, MOST = 1e-305, 1e290  # penalties of less or more, in these units, give the same fits as these


def unit_of(values: Float64) -> float:
    """Return a power of two near the largest of some numbers (n,), so that a division by it is exact."""
    return float(np.ldexp(1.0, np.frexp(np.max(np.abs(values)))[1] - 1))


def scaled_penalty(penalty: float, weights: float, targets: float = 1.0) -> float:
    """Return a penalty for weights that were divided by a unit, and targets and the loss by another."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(np.float64(penalty) * targets / weights, LEAST, MOST))


def refuse_penalty(penalty: float, trace: float, unit: float) -> ParameterError:
    """Return the error for a penalty that is lost beside a Hessian of such a trace, told in units of the caller."""
    rounding = float(np.finfo(float).eps) * trace
    return ParameterError(
        f"penalty must be well above the rounding of the sums over rows, {rounding * unit:.3g}; got {penalty * unit:g}"
    )
