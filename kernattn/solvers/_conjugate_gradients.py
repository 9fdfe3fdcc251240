"""Linear systems by preconditioned conjugate gradients, a column of the right-hand side each by its own steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64

Operator = Callable[[Float64], Float64]


class Stop(NamedTuple):
    """When the steps end."""

    tolerance: float
    iterations: int
    shown: Any  # a bar, or None


def conjugate_gradients(
    product: Operator, b: Float64, precondition: Operator, stop: Stop, start: Float64 | None = None
) -> tuple[Float64, Float64, bool]:
    """Return the solutions for columns of b (n, c), their relative residuals (steps, c), and whether all are small.

    Each column takes its own steps (Hestenes and Stiefel 1952); one whose residual is 0 stands still. They begin at
    `start`, or at 0.
    """
    units = units_of(b)
    b = b / units
    sizes = np.sqrt(np.sum(b**2, axis=0))
    sizes[sizes == 0] = 1.0
    solution = np.zeros_like(b) if start is None else start / units
    left = b.copy() if start is None else b - product(solution)
    z = precondition(left)
    direction, slope = z, np.sum(left * z, axis=0)
    residuals = [np.sqrt(np.sum(left**2, axis=0)) / sizes]
    while np.max(residuals[-1]) > stop.tolerance and len(residuals) <= stop.iterations:
        across = product(direction)
        curvature = np.sum(direction * across, axis=0)
        step = np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
        solution += step * direction
        left -= step * across
        residuals.append(np.sqrt(np.sum(left**2, axis=0)) / sizes)
        z = precondition(left)
        before, slope = slope, np.sum(left * z, axis=0)
        direction = z + np.divide(slope, before, out=np.zeros_like(slope), where=before > 0) * direction
        if stop.shown is not None:
            stop.shown.update()
    with np.errstate(over="ignore"):  # callers look at them
        solution = solution * units
    return solution, np.array(residuals), bool(np.max(residuals[-1]) <= stop.tolerance)


def units_of(b: Float64) -> Float64:
    """Return a power of two near the largest number of each column: squares of b may be beyond float64."""
    units: Float64 = np.ldexp(1.0, np.frexp(np.max(np.abs(b), axis=0))[1] - 1)
    return units
