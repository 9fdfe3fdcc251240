"""A map as compiled code reads it: two flat arrays on the way in, a tuple of windows inside."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

from kernattn.ops._numba.compile import inner
from kernattn.ops._numba.products import LINE
from kernattn.ops._numba.windows import window

__all__ = ["Map", "unpacked"]


class Map(NamedTuple):
    """What `layout.Plan` has packed; made in compiled code, where it costs nothing."""

    kind: Any
    dim: Any
    frequencies: Any
    features: Any
    amplitude: Any
    omega: Any
    omega_t: Any
    weights: Any
    offset: Any


@inner
def unpacked(numbers, constants):
    """Return the map that a plan's numbers and constants say."""
    unit = LINE // constants.itemsize
    omega_t = unit + (numbers[4] + unit - 1) // unit * unit
    weights = omega_t + (numbers[5] + unit - 1) // unit * unit
    offset = weights + (numbers[6] + unit - 1) // unit * unit
    return Map(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        constants[0],
        window(constants, unit, numbers[4]),
        window(constants, omega_t, numbers[5]),
        window(constants, weights, numbers[6]),
        window(constants, offset, numbers[7]),
    )
