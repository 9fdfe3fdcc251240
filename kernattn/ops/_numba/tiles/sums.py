"""The sums of a head while loops work on them: of features times values, and of features, in units of whole octaves."""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import change_of_unit, log_of, octaves, weight
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.far.lifted_keys import absorbed_octaves


class Sums(NamedTuple):
    """A tile of sums; made in compiled code, where it costs nothing."""

    s: Any  # (M, e), rows of `row` numbers
    z: Any  # (M,)
    units: Any  # (tops,), u for sums that are to be multiplied by 2^u; -inf where there are none yet
    reached: Any  # (tops,), the highest unit of any key so far
    features: Any
    e: Any
    row: Any
    tops: Any  # M where every feature has a unit, else 1


@inner
def _scale_row(sums, a, factor):
    """Multiply the sums of feature a."""
    sums.z[a] *= factor
    x = window(sums.s, a * sums.row, sums.e)
    for i in range(sums.e):
        x[i] *= factor


@inner
def clear(sums):
    """Forget every key. Sums with values are left as they lie: the next keys write over them."""
    for a in range(sums.tops):
        sums.units[a] = sums.reached[a] = sums.z.dtype.type(-np.inf)
    for a in range(sums.features):
        sums.z[a] = 0


@inner
def load_units(sums, given, start):
    """Read the sums of features and the units of head `start`; are its peaks whole units, so that no sum changes?"""
    _, z, peak = given
    units, logs, others = window(sums.units, 0, sums.tops), window(peak, start * sums.tops, sums.tops), 0
    for a in range(sums.tops):
        units[a] = octaves(logs[a])
        others += 0 if log_of(units[a]) == logs[a] else 1
    copy(units, 0, sums.tops, sums.reached, 0)
    copy(z, start * sums.features, sums.features, sums.z, 0)
    return others == 0


@inner
def load_sums(sums, given, start):
    """Read the sums (s, z, peak) of head `start`, in whole units: others are met by a factor."""
    whole = load_units(sums, given, start)
    s, _, peak = given
    features, e, row, tops = sums.features, sums.e, sums.row, sums.tops
    for a in range(features):
        copy(s, (start * features + a) * e, e, sums.s, a * row)
    for a in range(0 if whole else features):
        top = a if tops > 1 else 0
        factor = change_of_unit(peak[start * tops + top], -sums.units[top], sums.z.dtype.type(0))
        if factor != 1 and sums.units[top] > -np.inf:
            _scale_row(sums, a, factor)


@inner
def store_sums(sums, result, at, least):
    """Write the sums (s, z, peak) of head `at`, in the highest unit; sums of features below `least` count as 0."""
    rescale(sums, sums.reached, least)
    s, z, peak = result
    features, e, tops = sums.features, sums.e, sums.tops
    for a in range(tops):
        peak[at * tops + a] = log_of(sums.units[a])
    for a in range(features):
        z[at * features + a] = sums.z[a]
        copy(sums.s, a * sums.row, e, s, (at * features + a) * e)


@inner
def rescale(sums, units, least):
    """Bring the sums to units (tops,), where these differ; sums of features that fall below `least` count as 0."""
    zero, one = sums.z.dtype.type(0), sums.tops == 1
    for top in range(sums.tops):
        old, new = sums.units[top], units[top]
        if old != new:
            factor = weight(zero, old, new)
            for a in range(0 if one else top, sums.features if one else top + 1):
                _scale_row(sums, a, zero if sums.z[a] * factor < least else factor)
        sums.units[top] = new


@inner
def lift_sums(sums, lifted):
    """Make up for a lift that the units cannot say, as for weights of keys: see `absorbed_octaves`."""
    zero = sums.z.dtype.type(0)
    for a in range(sums.features):
        hidden = absorbed_octaves(sums.units[a if sums.tops > 1 else 0], lifted)
        if hidden > 0:
            _scale_row(sums, a, weight(zero, -hidden, zero))
