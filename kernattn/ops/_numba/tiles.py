"""Features of a chunk of tokens while it lies in cache.

Keys are kept token-major, (C, M), and queries features-major, (M, C): then every product reads contiguous vectors, and
every maximum and sum runs across vectors instead of inside one. Tiles are flat arrays with a row length.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import inner
from kernattn.ops._numba.elementary import cosine, exponential, sine_cosine, within_reach
from kernattn.ops._numba.products import FULL, product, transpose
from kernattn.ops._numba.windows import window

__all__ = [
    "COS",
    "ELU1",
    "EXP",
    "EXP_PAIR",
    "GIVEN",
    "RELU",
    "SINCOS",
    "add_columns",
    "finite_rows",
    "key_exponents",
    "key_values",
    "load_rows",
    "negated",
    "peaks_of_features",
    "peaks_of_rows",
    "query_projections",
    "query_values",
    "query_weights",
    "rescale",
    "row_scales",
]

ELU1, RELU, COS, SINCOS, GIVEN, EXP, EXP_PAIR = range(7)
"""The kinds of MapSpec as numbers; GIVEN are values that somebody computed. From EXP on, log scales are per feature."""


@inner
def finite_rows(x, at, rows, width, mask, mask_at):
    """Return how many rows can be taken together: those before the first with NaN or infinity, or that one alone."""
    zero = x.dtype.type(0)
    for j in range(rows):
        if mask.size == 0 or mask[mask_at + j]:
            source, total = window(x, at + j * width, width), zero
            for i in range(width):
                total += source[i] * zero
            if total != zero:
                return max(j, 1)
    return rows


@inner
def load_rows(x, at, rows, width, mask, mask_at, tile, row):
    """Copy rows of x to a tile, masked ones as zeros."""
    masked = mask.size > 0
    for j in range(rows):
        source, target = window(x, at + j * width, width), window(tile, j * row, width)
        if masked and not mask[mask_at + j]:
            for i in range(width):
                target[i] = 0
        else:
            for i in range(width):
                target[i] = source[i]


@inner
def row_scales(weights, tile, rows, width, row, given, given_at, mask, mask_at, scales):
    """Set scales_j to the log scale of row j: sum_i w_i x_i^2, or what was given; -inf for a masked row."""
    for j in range(rows):
        total = scales.dtype.type(0)
        if mask.size > 0 and not mask[mask_at + j]:
            total = scales.dtype.type(-np.inf)
        elif given.size > 0:
            total = given[given_at + j]
        elif weights.size > 0:
            x = window(tile, j * row, width)
            for i in range(width):
                total += weights[i] * x[i] * x[i]
        scales[j] = total


@inner
def _far(x, shift):
    """Does any x + shift lie beyond the range reduction?"""
    count = 0
    for i in range(x.size):
        count += 0 if within_reach(x[i] + shift) else 1
    return count > 0


@inner
def _values(kind, x, other, shift, factor):
    """Apply the nonlinearity of a kind in place, times factor; of a pair, write the sines to `other`."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    if kind == ELU1:
        for i in range(x.size):
            x[i] = factor * (x[i] + one if x[i] > zero else exponential(x[i]))
    elif kind == RELU:
        for i in range(x.size):
            x[i] = factor * (x[i] if x[i] > zero else zero)
    elif kind == COS:
        if _far(x, shift):
            for i in range(x.size):
                x[i] = factor * x.dtype.type(math.cos(x[i] + shift))
        else:
            for i in range(x.size):
                x[i] = factor * cosine(x[i] + shift)
    elif kind == SINCOS:
        if _far(x, shift):
            for i in range(x.size):
                other[i] = factor * x.dtype.type(math.sin(x[i]))
                x[i] = factor * x.dtype.type(math.cos(x[i]))
        else:
            for i in range(x.size):
                s, c = sine_cosine(x[i])
                other[i] = factor * s
                x[i] = factor * c
    elif factor != one:
        for i in range(x.size):
            x[i] = factor * x[i]


@inner
def key_values(kind, tile, rows, frequencies, row, offset, amplitude, scales, peak):
    """Turn projections (C, D) into values times amplitude exp(scales_j - peak), (C, M)."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for j in range(rows):
        factor = zero if scales[j] == nothing else amplitude * exponential(scales[j] - peak)
        x, other = window(tile, j * row, frequencies), window(tile, j * row + frequencies, frequencies)
        if kind == COS:
            for a in range(frequencies):
                x[a] += offset[a]
        _values(kind, x, other, zero, factor)


@inner
def peaks_of_rows(scales, rows, before, bound):
    """Return (how many rows may share a peak, that peak).

    Rows see what came before and row 0; a later row more than `bound` above both ends the chunk, so that no row is
    lost below a scale that comes from its future.
    """
    nothing = scales.dtype.type(-np.inf)
    first = 0
    if before == nothing:
        while first < rows and scales[first] == nothing:
            first += 1
    if first == rows:
        return rows, before
    base = max(before, scales[first])
    peak = base
    for j in range(first, rows):
        if scales[j] - base > bound:
            return j, peak
        peak = max(peak, scales[j])
    return rows, peak


@inner
def _highest(tile, low, high, row, features, scales, offset, before, peaks):
    """Set peaks_a to the largest log of feature a in rows low to high, or before them."""
    x, scale = window(tile, low * row, features), scales[low]
    for a in range(features):
        peaks[a] = x[a] + scale
    for j in range(low + 1, high):
        x, scale = window(tile, j * row, features), scales[j]
        for a in range(features):
            y = x[a] + scale
            peaks[a] = y if y > peaks[a] else peaks[a]
    for a in range(features):
        y = peaks[a] + offset[a]
        peaks[a] = y if y > before[a] else before[a]


@inner
def peaks_of_features(tile, rows, row, features, scales, offset, before, bound, base, peaks):
    """Set peaks_a for as many rows as may share them, as in `peaks_of_rows`, and return how many."""
    nothing = scales.dtype.type(-np.inf)
    first, seen = 0, 0
    for a in range(features):
        seen += 1 if before[a] > nothing else 0
    if seen == 0:
        while first < rows and scales[first] == nothing:
            first += 1
    if first == rows:
        for a in range(features):
            peaks[a] = before[a]
        return rows
    _highest(tile, first, first + 1, row, features, scales, offset, before, base)
    _highest(tile, first, rows, row, features, scales, offset, before, peaks)
    above = 0
    for a in range(features):
        above += 1 if peaks[a] - base[a] > bound else 0
    if above == 0:
        return rows
    for j in range(first + 1, rows):
        x, scale = window(tile, j * row, features), scales[j]
        above = 0
        for a in range(features):
            above += 1 if (x[a] + scale) + offset[a] - base[a] > bound else 0
        if above > 0:
            _highest(tile, first, j, row, features, scales, offset, before, peaks)
            return j
    return rows


@inner
def key_exponents(tile, rows, row, features, scales, offset, peaks, shift):
    """Turn logs of features (C, M) into exp(log - peak)."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for a in range(features):
        shift[a] = zero if peaks[a] == nothing else offset[a] - peaks[a]
    for j in range(rows):
        x, scale = window(tile, j * row, features), scales[j]
        for a in range(features):
            x[a] = exponential((x[a] + scale) + shift[a])


@inner
def add_columns(tile, rows, row, features, sums, z):
    """Add the sum of column a to z_a."""
    for a in range(features):
        sums[a] = 0
    for j in range(rows):
        x = window(tile, j * row, features)
        for a in range(features):
            sums[a] += x[a]
    for a in range(features):
        z[a] += sums[a]


@inner
def rescale(s, row, width, z, features, before, peaks):
    """Bring the sums s (M, e), z (M,) from the units e^before to e^peaks, where these differ."""
    for a in range(features):
        old, new = before[a], peaks[a]
        if old != new:
            factor = exponential(old - new)
            z[a] *= factor
            x = window(s, a * row, width)
            for i in range(width):
                x[i] *= factor
        before[a] = new


@inner
def query_projections(x, at, rows, width, omega, frequencies, tile, row, scratch, scratch_row):
    """Write the projections of rows of x, features-major (D, C)."""
    if omega.size == 0:
        transpose(x, at, width, rows, width, tile, 0, row)
    else:
        transpose(x, at, width, rows, width, scratch, 0, scratch_row)
        product(omega, 0, width, 1, scratch, 0, scratch_row, tile, 0, row, frequencies, rows, width, False, FULL)


@inner
def query_values(kind, tile, frequencies, features, row, rows, offset, z, normalisers):
    """Turn projections (D, C) into values (M, C), and add their products with z; what is common to a row cancels."""
    zero, one = tile.dtype.type(0), tile.dtype.type(1)
    if kind == COS:
        for a in range(frequencies):
            x = window(tile, a * row, row)
            _values(kind, x, x, offset[a], one)
    else:
        count = frequencies * row
        _values(kind, window(tile, 0, count), window(tile, count, count), zero, one)
    for a in range(features):
        x, weight = window(tile, a * row, rows), z[a]
        for i in range(rows):
            normalisers[i] += x[i] * weight


@inner
def query_weights(tile, rows, row, features, offset, peaks, z, shift, highest, normalisers):
    """Turn logs of features (M, C) into exp(log + peak - largest of its token), and add their products with z."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for i in range(rows):
        highest[i] = nothing
    for a in range(features):
        shift[a] = offset[a] + peaks[a]
    for a in range(features):
        x, add = window(tile, a * row, rows), shift[a]
        for i in range(rows):
            y = x[i] + add
            highest[i] = y if y > highest[i] else highest[i]
    for i in range(rows):
        highest[i] = zero if highest[i] == nothing else highest[i]
    for a in range(features):
        x, add, weight = window(tile, a * row, rows), shift[a], z[a]
        for i in range(rows):
            y = exponential((x[i] + add) - highest[i])
            x[i] = y
            normalisers[i] += y * weight


@inner
def negated(tile, at, count, other):
    """Write -x at `other`: the second half of a pair."""
    x, y = window(tile, at, count), window(tile, other, count)
    for i in range(count):
        y[i] = -x[i]
