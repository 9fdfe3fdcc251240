"""A map as compiled code reads it: two flat arrays on the way in, a tuple of windows inside."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.codegen.registers import LINE


class Map(NamedTuple):
    """What `packing.PackedMap` holds; made in compiled code, where it costs nothing."""

    kind: Any
    per_feature: Any  # is there a log scale for every feature?
    phase: Any  # is `offset` added to projections?
    positive: Any  # these two and `moderate` are columns of `kinds.Kind`
    exponential_tail: Any
    dim: Any
    frequencies: Any
    features: Any
    amplitude: Any
    reach: Any  # rows with sum_i |x_i| reach < 1 overflow nothing; 0 where none does
    precise: Any  # the same for queries, and so that their logs have digits after the point
    moderate: Any
    omega: Any
    omega_t: Any
    weights: Any
    offset: Any


@inner
def unpacked(arrays):
    """Return the map that the arrays of a `PackedMap` say."""
    numbers, constants = arrays
    unit = LINE // constants.itemsize
    omega_t = unit + pad(numbers[8], unit)
    weights = omega_t + pad(numbers[9], unit)
    offset = weights + pad(numbers[10], unit)
    return Map(
        numbers[0],
        numbers[1] != 0,
        numbers[2] != 0,
        numbers[3] != 0,
        numbers[4] != 0,
        numbers[5],
        numbers[6],
        numbers[7],
        constants[0],
        constants[1],
        constants[2],
        constants[3],
        window(constants, unit, numbers[8]),
        window(constants, omega_t, numbers[9]),
        window(constants, weights, numbers[10]),
        window(constants, offset, numbers[11]),
    )
