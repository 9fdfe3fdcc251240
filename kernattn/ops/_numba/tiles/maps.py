"""A map as compiled code reads it: two flat arrays on the way in, a tuple of windows inside."""

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


KIND, PER_FEATURE, PHASE, POSITIVE, TAIL, DIM, FREQUENCIES, FEATURES, OMEGA, OMEGA_T, WEIGHTS, OFFSET = range(12)
"""Where among a map's numbers they stand; the last four are sizes of parts of its constants."""

AMPLITUDE, REACH, PRECISE, MODERATE = range(4)
"""Where among its constants these do."""


@inner
def unpack(arrays):
    """Return the map that lies in the arrays of a `PackedMap`."""
    numbers, constants = arrays
    unit = LINE // constants.itemsize
    omega_t = unit + pad(numbers[OMEGA], unit)
    weights = omega_t + pad(numbers[OMEGA_T], unit)
    offset = weights + pad(numbers[WEIGHTS], unit)
    return Map(
        numbers[KIND],
        numbers[PER_FEATURE] != 0,
        numbers[PHASE] != 0,
        numbers[POSITIVE] != 0,
        numbers[TAIL] != 0,
        numbers[DIM],
        numbers[FREQUENCIES],
        numbers[FEATURES],
        constants[AMPLITUDE],
        constants[REACH],
        constants[PRECISE],
        constants[MODERATE],
        window(constants, unit, numbers[OMEGA]),
        window(constants, omega_t, numbers[OMEGA_T]),
        window(constants, weights, numbers[WEIGHTS]),
        window(constants, offset, numbers[OFFSET]),
    )
