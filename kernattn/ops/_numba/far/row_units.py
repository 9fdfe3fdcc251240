"""A row's own unit: what is common to all features of a query cancels, and keys bring theirs to the unit of the sums.

Positive features that are large or small in the whole row are divided by a power of two, and from the logs of a far
query its largest is taken off. Each row is judged by itself.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import change_of_unit, log_of, unit_of, weight
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.far.clamped import finite, largest_log, project_far
from kernattn.ops._numba.far.lifted_keys import absorbed_octaves
from kernattn.ops._numba.far.negligible import clear_negligible, negligible_size
from kernattn.ops._numba.kinds import moderate, row_values

BAND = 2.0**16  # sums of a row's values between 1 / BAND and BAND need no unit of their own


@inner
def _ordinary(total):
    """Is the sum of a row's values in the band?"""
    return total >= 1 / BAND and total <= BAND


@inner
def _largest(values):
    """Return the largest of values, none of them negative; NaN where one is."""
    top = 0.0
    for a in range(values.size):
        top = float(values[a]) if not values[a] <= top else top
        if not top < np.inf:
            return top
    return top


@inner
def _balance(phi, x, amplitude, values, u):
    """Divide the features of one row x by a power of two, so that the largest is near 1; return its exponent.

    -inf where all are 0. Features with an exponential tail that have all but vanished are computed again in that unit,
    of projections in the scratch u. So are others that the amplitude has taken out of the floats.
    """
    top, power = _largest(values), 0
    if amplitude != 1 and finite(x) and not (top >= negligible_size(values) and top < np.inf):
        part, power = math.frexp(float(amplitude))
        project_far(phi.omega_t, x, 0, largest_log(x), values)
        row_values(phi, values, 0, 0, phi.frequencies, values.dtype.type(part))
        top = _largest(values)
    if not top < np.inf:  # or NaN: as they are
        return values.dtype.type(0)
    if phi.exponential_tail and top < 1 / BAND:
        projections = window(u, 0, values.size)
        project_far(phi.omega_t, x, 0, largest_log(x), projections)
        highest = projections[0]
        for a in range(values.size):
            highest = max(highest, projections[a])
        octave = unit_of(highest)
        for a in range(values.size):
            values[a] = amplitude * weight(projections[a], values.dtype.type(0), octave)
        return octave
    if top == 0:
        return values.dtype.type(-np.inf)
    octave = math.frexp(top)[1]
    for a in range(values.size):
        values[a] = math.ldexp(float(values[a]), -octave)
    return values.dtype.type(octave + power)


@inner
def own_values(phi, k, at, rows, tile, row, scales, spare):
    """Turn projections of keys (C, D) into positive features; rows far from 1 get a unit, whose log goes to scales_j.

    Without one the features of a long key overflow, or hide those of a short one. A power of two changes no digit.
    Other kinds have log scales: nothing is done.
    """
    if not phi.positive:
        return
    nothing = tile.dtype.type(-np.inf)
    if moderate(phi, window(tile, 0, rows * row)):
        for j in range(rows):
            row_values(phi, tile, j * row, 0, phi.frequencies, phi.amplitude)
        return
    for j in range(rows):
        values = window(tile, j * row, phi.features)
        row_values(phi, tile, j * row, 0, phi.frequencies, phi.amplitude)
        total = tile.dtype.type(0)
        for a in range(values.size):
            total += values[a]
        if scales[j] > nothing and not _ordinary(total):
            x = window(k, at + j * phi.dim, phi.dim)
            scales[j] = log_of(_balance(phi, x, phi.amplitude, values, spare))
        clear_negligible(values)


@inner
def to_unit(tile, rows, row, features, scales, unit, lifted):
    """Bring rows from their own units, e^scales_j, to the unit 2^unit that they share, which is `lifted`.

    Exact, for both are powers of two; rows that have no unit of their own are left alone where the shared one is 1.
    """
    zero, one, nothing = tile.dtype.type(0), tile.dtype.type(1), tile.dtype.type(-np.inf)
    for j in range(rows):
        if scales[j] == zero and unit == zero:
            continue
        factor = zero if scales[j] == nothing else change_of_unit(scales[j], -unit, absorbed_octaves(unit, lifted))
        if factor != one:
            values = window(tile, j * row, features)
            for a in range(features):
                values[a] *= factor
            clear_negligible(values)


@inner
def balance_query(phi, x, values, spare):
    """Divide the positive features of one query x by a power of two where they are far from 1; return its octave."""
    total = values.dtype.type(0)
    for a in range(values.size):
        total += values[a]
    if _ordinary(total):
        return values.dtype.type(0)
    octave = _balance(phi, x, values.dtype.type(1), values, spare)
    return octave if octave > -np.inf else values.dtype.type(0)


@inner
def balance_queries(phi, x, at, rows, tile, row, z, totals, octaves, den, spare):
    """Divide queries, features-major (M, C), whose `totals` say that they need it; renew their normalisers.

    Octaves may lie where totals do.
    """
    values, rest = window(spare, 0, phi.features), window(spare, phi.features, phi.features)
    for i in range(rows):
        total = totals[i]
        octaves[i] = 0
        if phi.positive and not _ordinary(total):
            for a in range(phi.features):
                values[a] = tile[a * row + i]
            octaves[i] = balance_query(phi, window(x, at + i * phi.dim, phi.dim), values, rest)
            den[i] = 0
            for a in range(phi.features):
                tile[a * row + i] = values[a]
                den[i] += values[a] * z[a]


@inner
def take_off_largest(values, stride, count):
    """Take the largest off the logs of one row, every stride-th of `values`, and return it; nothing if not finite.

    Sums with whole units then keep digits that logs of that size have no room for.
    """
    largest = values[0]
    for a in range(count):
        largest = max(largest, values[a * stride])
    if not abs(largest) < np.inf:
        return values.dtype.type(0)
    for a in range(count):
        values[a * stride] -= largest
    return largest
