"""Rows that would leave the range of floats, one by one. Three things can, and each has its remedy.

Projections and log scales of huge rows are held (`hold`). Positive features that are large or small get a unit of their
own (`own_values`, `own_query`). Weights of keys with huge values stay some octaves below 1 (`lift`).

Each row is judged by itself, so that none is computed in another way because of its neighbours. Nothing here is fast;
the tests that find such rows are.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import inner
from kernattn.ops._numba.elementary import change_of_unit, log_of, unit_of, weight
from kernattn.ops._numba.kinds import moderate, row_values
from kernattn.ops._numba.memory import window
from kernattn.ops._numba.registers import LINE

__all__ = [
    "absorbed",
    "alike_rows",
    "balance_query",
    "hold",
    "lift",
    "ordinary",
    "own_query",
    "own_values",
    "to_unit",
    "within",
]

BAND = 2.0**16  # sums of a row's values between 1 / BAND and BAND need no unit of their own


@inner
def within(x, reach):
    """Is sum_i |x_i| reach below 1, so that no projection of x comes near the largest float? Not for NaN."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += abs(x[i]) * reach
    return total < x.dtype.type(1)


@inner
def ordinary(total):
    """Is the sum of a row's values in the band?"""
    return total >= 1 / BAND and total <= BAND


@inner
def lift(x):
    """Return by how many octaves a key with values x is lifted: 0 unless they are huge.

    Weights times such values would overflow as they are summed. A key that is lifted by n stands in a unit 2^n above
    its features: its weights are at most about 2^-n. Exact: n is whole, and outputs are ratios of sums in one unit.
    """
    small, octaves = (2.0**-60, 56) if x.itemsize == 4 else (2.0**-900, 128)
    return x.dtype.type(0) if within(x, x.dtype.type(small)) else x.dtype.type(octaves)


@inner
def _finite(x):
    """Are all numbers of a row finite?"""
    zero = x.dtype.type(0)
    total = zero
    for i in range(x.size):
        total += x[i] * zero
    return total == zero


@inner
def alike_rows(x, at, rows, width, mask, mask_at, lifted):
    """Return how many rows can be taken together, and by how many octaves their sums must be lifted.

    They are those before the first with NaN or infinity, or that one alone; and those before the first that needs a
    lift where none was needed before: what comes later does not lift a row.
    """
    if lift(window(x, at, rows * width)) == 0:
        return rows, lifted
    for j in range(rows):
        if mask.size == 0 or mask[mask_at + j]:
            row = window(x, at + j * width, width)
            own = lift(row)
            if own > 0 and not _finite(row):
                return max(j, 1), lifted
            if own > lifted:
                if j > 0:
                    return j, lifted
                lifted = own
    return rows, lifted


@inner
def _held(y, like):
    """Return y, at most a 64th of the largest float of a dtype: sums of two or three such logs are finite."""
    limit = 5.3e36 if like.itemsize == 4 else 2.8e306
    return like.dtype.type(limit if y > limit else -limit if y < -limit else y)


@inner
def _exponent(x):
    """Return e, so that max_i |x_i| 2^-e lies below 1; 0 where that is not finite."""
    largest = 0.0
    for i in range(x.size):
        largest = max(largest, abs(float(x[i])))
    return math.frexp(largest)[1] if largest < np.inf else 0


@inner
def held_projections(omega_t, x, u):
    """Write Omega x, or x itself, to u, held within what logs and angles may be."""
    if omega_t.size == 0:
        for a in range(u.size):
            u[a] = x[a] if math.isinf(x[a]) else _held(float(x[a]), x)
        return
    e, width = _exponent(x), 2 * LINE // x.itemsize
    for a in range(u.size):
        total, at = 0.0, a // width * x.size * width + a % width
        for i in range(x.size):
            total += math.ldexp(float(x[i]), -e) * float(omega_t[at + i * width])
        u[a] = _held(math.ldexp(total, e), x)


@inner
def held_scale(weights, x):
    """Return sum_i w_i x_i^2, held."""
    e, total = _exponent(x), 0.0
    for i in range(weights.size):
        y = math.ldexp(float(x[i]), -e)
        total += float(weights[i]) * y * y
    return _held(math.ldexp(math.ldexp(total, e), e), x)


@inner
def hold(phi, x, u, scales, j):
    """Put other projections u of a huge row x in place of those that have overflowed, and its log scale j.

    They are computed again in float64 with a power of two taken off, and cut at a 64th of the largest float: sums of
    two or three are finite then. Rows with NaN or infinity stay as they are, and scales where there is no room.
    """
    if _finite(x):
        if phi.weights.size > 0 and scales.size > 0:
            scales[j] = held_scale(phi.weights, x)
        held_projections(phi.omega_t, x, u)


@inner
def _balanced(phi, x, amplitude, values, u):
    """Divide the features of one row x by a power of two, so that the largest is near 1; return its exponent.

    -inf where all are 0; exact but for features 2^126 times below the largest. Features with an exponential tail that
    have all but vanished are computed again in that unit, of projections in the scratch u.
    """
    top = 0.0
    for a in range(values.size):
        if not values[a] < np.inf:  # or NaN: as they are
            return values.dtype.type(0)
        top = max(top, float(values[a]))
    if phi.exponential_tail and top < 1 / BAND:
        projections = window(u, 0, values.size)
        held_projections(phi.omega_t, x, projections)
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
    return values.dtype.type(octave)


@inner
def absorbed(unit, lifted):
    """Return how much of a lift a unit cannot say: all of it where unit + lifted rounds to the unit, else nothing.

    Units are floats, so those of immense features are whole multiples of many octaves. Their weights are multiplied by
    2^-lifted instead, which is exact.
    """
    zero = lifted - lifted
    return lifted if abs(unit) > lifted / np.finfo(lifted).eps else zero


@inner
def own_values(phi, k, at, rows, tile, row, scales, spare):
    """Turn projections of keys (C, D) into positive features; rows far from 1 get a unit, whose log goes to scales_j.

    Without one the features of a long key overflow, or hide those of a short one. A power of two changes no digit.
    Other kinds have log scales: nothing is done.
    """
    if not phi.positive:
        return
    zero, nothing = tile.dtype.type(0), tile.dtype.type(-np.inf)
    if moderate(phi, window(tile, 0, rows * row)):
        for j in range(rows):
            row_values(phi, tile, j * row, 0, phi.frequencies, phi.amplitude)
        return
    for j in range(rows):
        values = window(tile, j * row, phi.features)
        row_values(phi, tile, j * row, 0, phi.frequencies, phi.amplitude)
        total = zero
        for a in range(values.size):
            total += values[a]
        if scales[j] > nothing and not ordinary(total):
            x = window(k, at + j * phi.dim, phi.dim)
            scales[j] = log_of(_balanced(phi, x, phi.amplitude, values, spare))


@inner
def to_unit(tile, rows, row, features, scales, unit, lifted):
    """Bring rows from their own units, e^scales_j, to the unit 2^unit that they share, which is `lifted`.

    Exact, for both are powers of two; rows that have no unit of their own are left alone where the shared one is 1.
    """
    zero, one, nothing = tile.dtype.type(0), tile.dtype.type(1), tile.dtype.type(-np.inf)
    for j in range(rows):
        if scales[j] == zero and unit == zero and lifted == zero:
            continue
        factor = zero if scales[j] == nothing else change_of_unit(scales[j], -unit, absorbed(unit, lifted))
        if factor != one:
            values = window(tile, j * row, features)
            for a in range(features):
                values[a] *= factor


@inner
def own_query(phi, x, values, spare):
    """Divide the positive features of one query x by a power of two where they are far from 1: it cancels."""
    if not phi.positive:
        return
    total = values.dtype.type(0)
    for a in range(values.size):
        total += values[a]
    if not ordinary(total):
        _balanced(phi, x, values.dtype.type(1), values, spare)


@inner
def balance_query(phi, x, tile, row, i, z, den, spare):
    """Give the values of query i, far from 1, a unit of their own; return its octave."""
    values = window(spare, 0, phi.features)
    for a in range(phi.features):
        values[a] = tile[a * row + i]
    octave = _balanced(phi, x, tile.dtype.type(1), values, window(spare, phi.features, phi.features))
    den[i] = 0
    for a in range(phi.features):
        tile[a * row + i] = values[a]
        den[i] += values[a] * z[a]
    return octave if octave > -np.inf else tile.dtype.type(0)
