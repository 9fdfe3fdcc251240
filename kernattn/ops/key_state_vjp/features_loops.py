"""Features of a walk's tokens: of writers, token-major and in units of the sums, and of readers, features-major."""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.elementary import weight
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store, where
from kernattn.ops._numba.far.lifted_keys import USUAL, rise_of
from kernattn.ops._numba.kinds import column_logs, column_values, positive_value, row_logs, row_values
from kernattn.ops._numba.tiles.chunk import unit_of_rows, units_of_features
from kernattn.ops._numba.tiles.products import panel_product


@inner_exact
def _write_logs(tile, keys, rows, row, features, offset, units, totals):
    """Turn logs of features (C, M) into features 2^-units_a, and set totals_a to the sum of feature a times h."""
    nothing, zero, width = keys.dtype.type(-np.inf), keys.dtype.type(0), lanes(keys)
    for a in range(0, features, 2 * width):
        b = a + width if a + width < features else a
        add, unit, add_too, unit_too = load(offset, a), load(units, a), load(offset, b), load(units, b)
        unit, unit_too = where(unit == nothing, zero, unit), where(unit_too == nothing, zero, unit_too)
        total = total_too = every(unit, zero)
        for j in range(rows):
            scale, octave, rest, h = tile.scales[j], tile.octaves[j], tile.rest[j], tile.h[j]
            x, y = (load(keys, j * row + a) + scale) + add, (load(keys, j * row + b) + scale) + add_too
            x = weight(x, every(unit, octave), unit) * rest
            y = weight(y, every(unit, octave), unit_too) * rest
            store(x, keys, j * row + a)
            store(y, keys, j * row + b)
            total, total_too = total + x * h, total_too + y * h
        store(total, totals, a)
        store(total_too, totals, b)


@inner_exact
def _factors(phi, tile, rows, unit):
    """Set what multiplies the values of each token: e^scale 2^(octave + unit) rest and the amplitude."""
    zero = tile.rest.dtype.type(0)
    for i in range(0, rows, lanes(tile.rest)):
        power = weight(load(tile.scales, i), load(tile.octaves, i) + unit, zero)
        store(power * load(tile.rest, i) * phi.amplitude, tile.factor, i)


@inner_exact
def _write_positive(phi, x, at, stride, rows, tile, row, tokens, totals):
    """Write elu1 or relu of rows of x times their factors to a tile, and the sums of these times h to totals."""
    width, last, zero = lanes(tile), phi.features - lanes(tile), tile.dtype.type(0)
    for a in range(0, phi.features, 2 * width):  # two vectors of columns at a time, of the last ones some twice
        a, b = min(a, last), min(a + width, last)
        total = total_too = every(load(tile, 0), zero)
        for j in range(rows):
            u, v = load(x, at + stride * j + a), load(x, at + stride * j + b)
            u = positive_value(phi.kind, u, zero) * tokens.factor[j]
            v = positive_value(phi.kind, v, zero) * tokens.factor[j]
            store(u, tile, j * row + a)
            store(v, tile, j * row + b)
            total, total_too = total + u * tokens.h[j], total_too + v * tokens.h[j]
        store(total, totals, a)
        store(total_too, totals, b)


@inner
def write_features(phi, x, at, stride, tile, rows, keys, row, sums, base, reached, totals):
    """Write the features of tokens, (C, M), in units that `base` becomes; return how many tokens share them.

    totals_a becomes the sum of feature a times h.
    """
    zero, frequencies, features = keys.dtype.type(0), phi.frequencies, phi.features
    if phi.omega_t.size > 0:
        panel_product(tile.x, rows, phi.dim, phi.omega_t, 0, frequencies, keys, row)
    elif not phi.positive:
        for j in range(rows):
            copy(x, at + stride * j, phi.dim, keys, j * row)
    above = rise_of(USUAL, keys)
    if phi.per_feature:
        row_logs(phi, keys, rows, row, frequencies)
        rows = units_of_features(
            keys, rows, row, features, tile.logs, phi.offset, sums.reached, above, zero, base, reached
        )
        copy(reached, 0, features, sums.reached, 0)
        _write_logs(tile, keys, rows, row, features, phi.offset, base, totals)
        return rows
    base[0] = sums.reached[0] = zero if phi.positive else sums.reached[0]
    if not phi.positive:
        rows, base[0], sums.reached[0] = unit_of_rows(tile.logs, rows, sums.reached[0], above, zero)
    _factors(phi, tile, rows, -base[0] if base[0] > keys.dtype.type(-np.inf) else zero)
    if phi.positive and phi.omega_t.size == 0 and features >= lanes(keys):
        _write_positive(phi, x, at, stride, rows, keys, row, tile, totals)
        return rows
    for a in range(features):
        totals[a] = zero
    for j in range(rows):
        y, h = window(keys, j * row, features), tile.h[j]
        if phi.positive and phi.omega_t.size == 0:
            copy(x, at + stride * j, phi.dim, keys, j * row)
        row_values(phi, keys, j * row, 0, frequencies, tile.factor[j])
        for a in range(features):
            totals[a] += y[a] * h
    return rows


@inner_exact
def read_weights(phi, weights, row, tile, rows, units):
    """Turn projections (D, C) into features (M, C), and set the factors that they still lack."""
    zero, width = weights.dtype.type(0), lanes(weights)
    if phi.per_feature:
        column_logs(phi, weights, row)
        for a in range(phi.features):
            add, unit = phi.offset[a], units[a]
            for i in range(0, row, width):
                at = a * row + i
                x = (load(weights, at) + load(tile.scales, i)) + add
                store(weight(x, load(tile.octaves, i) + unit, zero), weights, at)
        copy(tile.rest, 0, rows, tile.factor, 0)
    else:
        column_values(phi, weights, row)
        _factors(phi, tile, rows, units[0])
