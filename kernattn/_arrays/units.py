"""Powers of two in which numbers are of a size whose products float64 holds."""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64

MODERATE = 2.0**-128, 2.0**128  # sizes of which a product of seven is a float


def unit_of(values: Any, moderate: tuple[float, float] = MODERATE) -> float:
    """Return a power of four near the largest of some numbers, dense or CSR; 1 where it is moderate.

    Neither a division by it rounds, nor its root. Where it is 1 nothing is divided, to the last digit.
    """
    largest = max(float(values.max()), -float(values.min()))
    if not largest or moderate[0] <= largest <= moderate[1] or not np.isfinite(largest):
        return 1.0
    return float(np.ldexp(1.0, 2 * ((np.frexp(largest)[1] - 1) // 2)))


def in_units(values: Float64, unit: float) -> Float64:
    """Return numbers in a unit; what is next to nothing beside the largest may be 0."""
    if unit == 1:
        return values
    with np.errstate(under="ignore"):
        return values / unit
