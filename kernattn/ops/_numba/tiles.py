"""Features of a chunk of tokens while it lies in cache.

Keys are kept token-major, (C, M), and queries features-major, (M, C): then every product reads contiguous vectors, and every maximum and
sum runs across vectors instead of inside one. All tiles are flat arrays with an offset of 0 and a row length.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.elementary import cosine, exponential, sine_cosine, within_reach
from kernattn.ops._numba.products import FULL, product, transpose

__all__ = [
    "COS",
    "ELU1",
    "EXP",
    "EXP_PAIR",
    "GIVEN",
    "RELU",
    "SINCOS",
    "column_sums",
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


@compiled
def load_rows(x, at, rows, width, mask, mask_at, tile, row):
    """Copy rows of x to a tile, masked ones as zeros."""
    masked = mask.size > 0
    for j in range(rows):
        here, there = at + j * width, j * row
        if masked and not mask[mask_at + j]:
            for i in range(width):
                tile[there + i] = 0
        else:
            for i in range(width):
                tile[there + i] = x[here + i]


@compiled
def row_scales(weights, tile, rows, width, row, given, given_at, mask, mask_at, scales):
    """Set scales_j to the log scale of row j: sum_i w_i x_i^2, or what was given; -inf for a masked row."""
    for j in range(rows):
        total = scales.dtype.type(0)
        if mask.size > 0 and not mask[mask_at + j]:
            total = scales.dtype.type(-np.inf)
        elif given.size > 0:
            total = given[given_at + j]
        elif weights.size > 0:
            for i in range(width):
                x = tile[j * row + i]
                total += weights[i] * x * x
        scales[j] = total


@compiled
def _cosines(tile, at, count, offset, offset_at, offset_step, factor):
    """x -> factor cos(x + offset) in place."""
    far = 0
    for i in range(count):
        x = tile[at + i] + offset[offset_at + i * offset_step]
        tile[at + i] = x
        far += 0 if within_reach(x) else 1
    if far > 0:
        for i in range(count):
            tile[at + i] = factor * tile.dtype.type(math.cos(tile[at + i]))
    else:
        for i in range(count):
            tile[at + i] = factor * cosine(tile[at + i])


@compiled
def _pairs(tile, at, other, count, factor):
    """x -> factor cos(x) in place, factor sin(x) at `other`."""
    far = 0
    for i in range(count):
        far += 0 if within_reach(tile[at + i]) else 1
    if far > 0:
        for i in range(count):
            x = tile[at + i]
            tile[other + i] = factor * tile.dtype.type(math.sin(x))
            tile[at + i] = factor * tile.dtype.type(math.cos(x))
    else:
        for i in range(count):
            s, c = sine_cosine(tile[at + i])
            tile[other + i] = factor * s
            tile[at + i] = factor * c


@compiled
def _values(kind, tile, at, count, other, offset, offset_at, offset_step, factor):
    """Apply the nonlinearity of a kind without log scale per feature in place, times factor."""
    zero, one = tile.dtype.type(0), tile.dtype.type(1)
    if kind == ELU1:
        for i in range(count):
            x = tile[at + i]
            tile[at + i] = factor * (x + one if x > zero else exponential(x))
    elif kind == RELU:
        for i in range(count):
            x = tile[at + i]
            tile[at + i] = factor * (x if x > zero else zero)
    elif kind == COS:
        _cosines(tile, at, count, offset, offset_at, offset_step, factor)
    elif kind == SINCOS:
        _pairs(tile, at, other, count, factor)
    elif factor != one:
        for i in range(count):
            tile[at + i] = factor * tile[at + i]


@compiled
def key_values(kind, tile, rows, frequencies, row, offset, amplitude, scales, peak):
    """Turn projections (C, D) into values times amplitude exp(scales_j - peak), (C, M)."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for j in range(rows):
        factor = zero if scales[j] == nothing else amplitude * exponential(scales[j] - peak)
        _values(kind, tile, j * row, frequencies, j * row + frequencies, offset, 0, 1, factor)


@compiled
def peaks_of_rows(scales, rows, before, bound):
    """Return (how many rows may share a peak, that peak).

    Rows see what came before and row 0, whose scale is their unit; a later row more than `bound` above it ends the chunk, so that no scale
    that a row uses comes from its future.
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


@compiled
def _highest(tile, low, high, row, features, scales, offset, before, peaks):
    """Set peaks_a to the largest log of feature a in rows low to high, or before them."""
    for a in range(features):
        peaks[a] = tile[low * row + a] + scales[low]
    for j in range(low + 1, high):
        scale = scales[j]
        for a in range(features):
            x = tile[j * row + a] + scale
            peaks[a] = x if x > peaks[a] else peaks[a]
    for a in range(features):
        x = peaks[a] + offset[a]
        peaks[a] = x if x > before[a] else before[a]


@compiled
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
        scale = scales[j]
        for a in range(features):
            above += 1 if (tile[j * row + a] + scale) + offset[a] - base[a] > bound else 0
        if above > 0:
            _highest(tile, first, j, row, features, scales, offset, before, peaks)
            return j
    return rows


@compiled
def key_exponents(tile, rows, row, features, scales, offset, peaks, shift):
    """Turn logs of features (C, M) into exp(log - peak)."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for a in range(features):
        shift[a] = zero if peaks[a] == nothing else offset[a] - peaks[a]
    for j in range(rows):
        scale = scales[j]
        for a in range(features):
            tile[j * row + a] = exponential((tile[j * row + a] + scale) + shift[a])


@compiled
def column_sums(tile, rows, row, features, sums):
    """Set sums_a to the sum of column a."""
    for a in range(features):
        sums[a] = 0
    for j in range(rows):
        for a in range(features):
            sums[a] += tile[j * row + a]


@compiled
def rescale(s, row, width, z, features, before, peaks):
    """Bring the sums s (M, e), z (M,) from the units e^before to e^peaks, where these differ."""
    for a in range(features):
        old, new = before[a], peaks[a]
        if old != new:
            factor = exponential(old - new)
            z[a] *= factor
            for i in range(width):
                s[a * row + i] *= factor
        before[a] = new


@compiled
def query_projections(x, at, rows, width, omega, frequencies, tile, row, scratch, scratch_row):
    """Write the projections of rows of x, features-major (D, C)."""
    if omega.size == 0:
        transpose(x, at, width, rows, width, tile, 0, row)
    else:
        transpose(x, at, width, rows, width, scratch, 0, scratch_row)
        product(omega, 0, width, 1, scratch, 0, scratch_row, tile, 0, row, frequencies, rows, width, False, FULL)


@compiled
def query_values(kind, tile, frequencies, row, offset):
    """Turn projections (D, C) into values (M, C); what is common to a row cancels."""
    one = tile.dtype.type(1)
    if kind == COS:
        for a in range(frequencies):
            _values(kind, tile, a * row, row, 0, offset, a, 0, one)
    else:
        count = frequencies * row
        _values(kind, tile, 0, count, count, offset, 0, 0, one)


@compiled
def query_weights(tile, rows, row, features, offset, peaks, z, shift, highest, normalisers):
    """Turn logs of features (M, C) into exp(log + peak - largest of its token), and add their products with z."""
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    for i in range(rows):
        highest[i] = nothing
    for a in range(features):
        add = offset[a] + peaks[a]
        shift[a] = add
        for i in range(rows):
            x = tile[a * row + i] + add
            highest[i] = x if x > highest[i] else highest[i]
    for i in range(rows):
        highest[i] = zero if highest[i] == nothing else highest[i]
    for a in range(features):
        add, weight = shift[a], z[a]
        for i in range(rows):
            x = exponential((tile[a * row + i] + add) - highest[i])
            tile[a * row + i] = x
            normalisers[i] += x * weight


@compiled
def negated(tile, at, count, other):
    """Write -x at `other`: the second half of a pair."""
    for i in range(count):
        tile[other + i] = -tile[at + i]
