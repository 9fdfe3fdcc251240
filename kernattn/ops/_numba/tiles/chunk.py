"""Features of a chunk of tokens while it lies in cache.

Keys are kept token-major, (C, M), and queries features-major, (M, C): then every product reads contiguous vectors, and
every maximum and sum runs across vectors instead of inside one. Tiles are flat arrays with a row length.
"""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.elementary import octaves, unit_of, weight
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store, where
from kernattn.ops._numba.far.clamped import clamp_row, within
from kernattn.ops._numba.far.lifted_keys import absorbed_octaves
from kernattn.ops._numba.far.row_units import balance_queries, own_values, take_off_largest, to_unit
from kernattn.ops._numba.kinds import column_logs, column_values, row_logs, row_values
from kernattn.ops._numba.tiles.moderate import moderate_queries
from kernattn.ops._numba.tiles.products import FULL, panel_product, product, transpose


@inner
def load_rows(x, at, rows, width, mask, mask_at, tile, row):
    """Copy rows of x to a tile, masked ones as zeros."""
    masked = mask.size > 0
    for j in range(rows):
        if masked and not mask[mask_at + j]:
            target = window(tile, j * row, width)
            for i in range(width):
                target[i] = 0
        else:
            copy(x, at + j * width, width, tile, j * row)


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
def in_unit(phi, tile, rows, row, scales, unit, lifted):
    """Turn what `own_values` left into features times e^scales_j 2^-unit, (C, M), where the unit is `lifted`."""
    if phi.positive:
        to_unit(tile, rows, row, phi.features, scales, unit, lifted)
    else:
        nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
        for j in range(rows):
            factor = (
                zero
                if scales[j] == nothing
                else phi.amplitude * weight(scales[j], -unit, absorbed_octaves(unit, lifted))
            )
            row_values(phi, tile, j * row, 0, phi.frequencies, factor)


@inner
def key_values(phi, k, at, rows, tile, row, scales, before, bound, lifted, spare, sums):
    """Turn projections of keys (C, D) into features 2^-unit, one unit for all.

    Return (how many share it, that unit, the highest unit of their own). `before` is the highest of what came before
    them; sums_a becomes the sum of feature a.
    """
    own_values(phi, k, at, rows, tile, row, scales, spare)
    rows, unit, reached = unit_of_rows(scales, rows, before, bound, lifted)
    in_unit(phi, tile, rows, row, scales, unit, lifted)
    column_sums(tile, rows, row, phi.features, sums)
    return rows, unit, reached


@inner
def unit_of_rows(scales, rows, before, bound, lifted):
    """Return (how many rows may share a unit, that unit, the highest of a row), `lifted` octaves above their scales.

    The unit is that of what all of the rows see: what came before, and the first row with a scale. A later row more
    than 2^bound above it ends the chunk.
    """
    nothing = scales.dtype.type(-np.inf)
    first = 0
    if before == nothing:
        while first < rows and scales[first] == nothing:
            first += 1
    if first == rows:
        return rows, before, before
    unit = max(before, unit_of(scales[first]) + lifted)
    reached = unit
    for j in range(first, rows):
        own = unit_of(scales[j]) + lifted
        if own - unit > bound:
            return j, unit, reached
        reached = max(reached, own)
    return rows, unit, reached


@inner
def _find_units(tile, low, high, row, features, scales, offset, before, lifted, units):
    """Set units_a to that of the largest log of feature a in rows low to high, or the one before them."""
    width = lanes(tile)
    for a in range(0, features, 2 * width):
        b = a + width if a + width < features else a
        top, top_too = load(tile, low * row + a) + scales[low], load(tile, low * row + b) + scales[low]
        for j in range(low + 1, high):
            x, y = load(tile, j * row + a) + scales[j], load(tile, j * row + b) + scales[j]
            top, top_too = where(x > top, x, top), where(y > top_too, y, top_too)
        top, top_too = unit_of(top + load(offset, a)) + lifted, unit_of(top_too + load(offset, b)) + lifted
        old, old_too = load(before, a), load(before, b)
        store(where(top > old, top, old), units, a)
        store(where(top_too > old_too, top_too, old_too), units, b)


@inner
def units_of_features(tile, rows, row, features, scales, offset, before, bound, lifted, units, reached):
    """Set units_a, and the highest of a row, as in `unit_of_rows`, and return how many rows may share them."""
    nothing = scales.dtype.type(-np.inf)
    first, seen = 0, 0
    for a in range(features):
        seen += 1 if before[a] > nothing else 0
    if seen == 0:
        while first < rows and scales[first] == nothing:
            first += 1
    if first == rows:
        for a in range(features):
            units[a] = reached[a] = before[a]
        return rows
    _find_units(tile, first, first + 1, row, features, scales, offset, before, lifted, units)
    _find_units(tile, first, rows, row, features, scales, offset, before, lifted, reached)
    above = 0
    for a in range(features):
        above += 1 if reached[a] - units[a] > bound else 0
    if above == 0:
        return rows
    for j in range(first + 1, rows):
        x, scale = window(tile, j * row, features), scales[j]
        above = 0
        for a in range(features):
            above += 1 if (unit_of((x[a] + scale) + offset[a]) + lifted) - units[a] > bound else 0
        if above > 0:
            _find_units(tile, first, j, row, features, scales, offset, before, lifted, reached)
            return j
    return rows


@inner_exact
def _column_weights(tile, rows, row, features, scales, offset, units, lifted, sums):
    """Turn logs of features (C, M) into e^log 2^-unit, units `lifted`, and set sums_a to the sum of column a."""
    nothing, zero, width = tile.dtype.type(-np.inf), tile.dtype.type(0), lanes(tile)
    for a in range(0, features, 2 * width):
        b = a + width if a + width < features else a
        add, unit, add_too, unit_too = load(offset, a), load(units, a), load(offset, b), load(units, b)
        unit, unit_too = where(unit == nothing, zero, unit), where(unit_too == nothing, zero, unit_too)
        total = total_too = every(unit, zero)
        for j in range(rows):
            x, y = load(tile, j * row + a) + scales[j], load(tile, j * row + b) + scales[j]
            x, y = weight(x + add, zero, unit), weight(y + add_too, zero, unit_too)
            store(x, tile, j * row + a)
            store(y, tile, j * row + b)
            total, total_too = total + x, total_too + y
        store(total, sums, a)
        store(total_too, sums, b)
    if lifted > 0:
        for a in range(features):
            hidden = absorbed_octaves(units[a], lifted)
            if hidden > 0:
                factor = weight(zero, zero, hidden)
                sums[a] *= factor
                for j in range(rows):
                    tile[j * row + a] *= factor


@inner
def key_weights(phi, rows, tile, row, scales, before, bound, lifted, units, reached, sums):
    """Turn projections of keys (C, D) into features 2^-units_a, a unit for each feature; return how many share them.

    `before` are the highest units of what came before them, and `reached` becomes that; sums_a becomes the sum of
    feature a.
    """
    row_logs(phi, tile, rows, row, phi.frequencies)
    features, offset = phi.features, phi.offset
    rows = units_of_features(tile, rows, row, features, scales, offset, before, bound, lifted, units, reached)
    _column_weights(tile, rows, row, features, scales, offset, units, lifted, sums)
    return rows


@inner
def column_sums(tile, rows, row, features, sums):
    """Set sums_a to the sum of column a."""
    for a in range(features):
        sums[a] = 0
    for j in range(rows):
        x = window(tile, j * row, features)
        for a in range(features):
            sums[a] += x[a]


@inner
def _query_projections(phi, x, at, rows, tile, row, packed, spare, made):
    """Write the projections of rows of x, features-major (D, C)."""
    dim, frequencies = phi.dim, phi.frequencies
    if made[0].size > 0:
        transpose(made[0], 0, made[1], rows, frequencies, tile, 0, row)
    elif phi.omega.size == 0:
        transpose(x, at, dim, rows, dim, tile, 0, row)
    elif rows == 1:
        panel_product(window(x, at, dim), 1, dim, phi.omega_t, 0, frequencies, spare, frequencies)
        transpose(spare, 0, frequencies, 1, frequencies, tile, 0, row)
    else:
        transpose(x, at, dim, rows, dim, packed, 0, row)
        product(phi.omega, 0, dim, 1, packed, 0, row, tile, 0, row, frequencies, rows, dim, False, FULL)


@inner
def _query_values(phi, tile, row, rows, z, totals, normalisers):
    """Turn projections (D, C) into values (M, C), and add their products with z; what is common to a row cancels.

    `totals` become sums of the values where these may be far from 1, else 1.
    """
    column_values(phi, tile, row)
    for i in range(rows):
        totals[i] = 0 if phi.positive else 1
    for a in range(phi.features):
        x, weight = window(tile, a * row, rows), z[a]
        if phi.positive:
            for i in range(rows):
                totals[i] += x[i]
        for i in range(rows):
            normalisers[i] += x[i] * weight


@inner_exact
def _last_query_weights(phi, tile, row, i, units, z, highest, normalisers):
    """Turn logs of the one vector of columns from i on into weights, as `_query_weights` does two at a time."""
    features, offset = phi.features, phi.offset
    nothing, zero = tile.dtype.type(-np.inf), tile.dtype.type(0)
    top = every(load(highest, i), nothing)
    for a in range(features):
        x = octaves(load(tile, a * row + i) + offset[a]) + units[a]
        top = where(x > top, x, top)
    top = where(top == nothing, zero, top)
    store(top, highest, i)
    total = load(normalisers, i)
    for a in range(features):
        x = weight(load(tile, a * row + i) + offset[a], units[a], top)
        store(x, tile, a * row + i)
        total = total + x * z[a]
    store(total, normalisers, i)


@inner_exact
def _query_weights(phi, tile, row, rows, units, z, highest, normalisers):
    """Turn logs of features (M, C) into e^log 2^(unit - highest), whole powers, and add their products with z."""
    features, offset = phi.features, phi.offset
    nothing, zero, width = tile.dtype.type(-np.inf), tile.dtype.type(0), lanes(tile)
    for i in range(0, rows, 2 * width):  # two vectors of columns at a time
        j = i + width
        if j >= rows:
            _last_query_weights(phi, tile, row, i, units, z, highest, normalisers)
            return
        top = top_too = every(load(highest, i), nothing)
        for a in range(features):
            x, y = load(tile, a * row + i), load(tile, a * row + j)
            x, y = octaves(x + offset[a]) + units[a], octaves(y + offset[a]) + units[a]
            top, top_too = where(x > top, x, top), where(y > top_too, y, top_too)
        top, top_too = where(top == nothing, zero, top), where(top_too == nothing, zero, top_too)
        store(top, highest, i)
        store(top_too, highest, j)
        total, total_too = load(normalisers, i), load(normalisers, j)
        for a in range(features):
            x, y = load(tile, a * row + i), load(tile, a * row + j)
            x, y = weight(x + offset[a], units[a], top), weight(y + offset[a], units[a], top_too)
            store(x, tile, a * row + i)
            store(y, tile, a * row + j)
            total, total_too = total + x * z[a], total_too + y * z[a]
        store(total, normalisers, i)
        store(total_too, normalisers, j)


@inner
def project_keys(phi, k, at, rows, mask, mask_at, given, given_at, packed, tile, row, scales, made):
    """Write the projections of rows of k, token-major (C, D), and the log scale of each row.

    They may be `made` already: an array, of no numbers where they are not, and how far a row is from the next.
    """
    dim = phi.dim
    if phi.omega_t.size == 0:
        load_rows(k, at, rows, dim, mask, mask_at, tile, row)
        row_scales(phi.weights, tile, rows, dim, row, given, given_at, mask, mask_at, scales)
    else:
        load_rows(k, at, rows, dim, mask, mask_at, packed, dim)
        row_scales(phi.weights, packed, rows, dim, dim, given, given_at, mask, mask_at, scales)
        if made[0].size > 0:
            for j in range(rows):
                copy(made[0], j * made[1], phi.frequencies, tile, j * row)
        else:
            panel_product(packed, rows, dim, phi.omega_t, 0, phi.frequencies, tile, row)
    inputs, step = (tile, row) if phi.omega_t.size == 0 else (packed, dim)
    if phi.reach > 0 and (step > dim or not within(window(packed, 0, rows * dim), phi.reach)):
        for j in range(rows):
            x = window(inputs, j * step, dim)
            if not within(x, phi.reach):
                own = window(scales, 0, 0 if given.size > 0 else rows)
                clamp_row(phi, x, window(tile, j * row, phi.frequencies), own, j)


@inner
def query_features(phi, q, at, rows, units, z, packed, tile, row, highest, own, den, spare, made):
    """Write the weights of queries, features-major (M, C), their units, and normalisers over z.

    Weights of query i are its features times e^-own_i 2^-highest_i. Projections may be `made`, as for `project_keys`.
    """
    dim, frequencies = phi.dim, phi.frequencies
    _query_projections(phi, q, at, rows, tile, row, packed, spare, made)
    if phi.moderate > 0:
        if moderate_queries(phi, tile, row, rows, z, den):
            for i in range(rows):
                highest[i] = own[i] = 0
            return
        _query_projections(phi, q, at, rows, tile, row, packed, spare, made)
    far = phi.precise > 0 and not within(window(q, at, rows * dim), phi.precise)
    for i in range(rows):
        own[i] = den[i] = 0
    if far and phi.reach > 0:
        for i in range(rows):
            x, u = window(q, at + i * dim, dim), window(spare, 0, frequencies)
            if not within(x, phi.reach):
                for a in range(frequencies):
                    u[a] = tile[a * row + i]
                clamp_row(phi, x, u, window(highest, 0, 0), 0)
                for a in range(frequencies):
                    tile[a * row + i] = u[a]
    if phi.per_feature:
        column_logs(phi, tile, row)
        if far:
            for i in range(rows):
                if not within(window(q, at + i * dim, dim), phi.precise):
                    own[i] = take_off_largest(window(tile, i, tile.size - i), row, phi.features)
        _query_weights(phi, tile, row, rows, units, z, highest, den)
    else:
        _query_values(phi, tile, row, rows, z, highest, den)
        balance_queries(phi, q, at, rows, tile, row, z, highest, highest, den, spare)
