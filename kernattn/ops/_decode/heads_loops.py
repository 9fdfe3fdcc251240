"""A token of heads that have maps of their own: exact weights on a window, features before it, one normaliser.

Sums are those of features over e^peak, as `PeakedSum` has them. What leaves the window enters them; where there is
none, the token itself does. A window is a ring: the oldest token of a sequence lies at its number of tokens modulo w.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.kinds import row_logs, row_values
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops.step.sums_loops import read, renew

NUMBERS, NUMBERS_SIZE, CONSTANTS, CONSTANTS_SIZE, SCALE, RANK, NORMALISED = range(7)
MAP_COLUMNS = 7
"""Columns of the table of maps: where the numbers and the constants of one lie, and how many there are of them; of a
head with a map of its own also where what its row scale needs begins, the rank of that, -1 without one, and whether
features are divided by their sum."""

EXACT, BIAS, FACTOR, WEIGHTS = range(4)
"""From where that begins: the scale of exact scores, their bias, the factor of outputs; then weights of squares (d),
linear (d), the centre (d) and factors (rank, d)."""

S, Z, PEAK, WINDOW_K, WINDOW_V, ABSENT, FEATURES, PEAKS, WINDOW, FIRST_MAP, OWN_MAPS = range(11)
PLACE_COLUMNS = 11
"""Columns of places: where the sums of a layer begin, and keys and values of its window and whether they are absent
(-inf, else 0); features and peaks, 0 without a map; the window's size, the first of the layer's maps, and how many
these are, 0 for one whose features the loop of a token computes. Other layers have what they remember at S and Z."""


@inner
def map_of(maps, at, side):
    """Return a map, for queries (0) or keys (1)."""
    numbers, constants, table = maps
    place = window(table, MAP_COLUMNS * (2 * at + side), MAP_COLUMNS)
    return (
        window(numbers, place[NUMBERS], place[NUMBERS_SIZE]),
        window(constants, place[CONSTANTS], place[CONSTANTS_SIZE]),
    )


@inner
def _row_scale(x, constants, rank):
    """Return w.x^2 + l.x - |F (x - c)|^2 / 2."""
    d, total = x.size, x.dtype.type(0)
    weights, linear = window(constants, 0, d), window(constants, d, d)
    centre = window(constants, 2 * d, d)
    for i in range(d):
        total += (weights[i] * x[i] + linear[i]) * x[i]
    for a in range(rank):
        factor, y = window(constants, (3 + a) * d, d), x.dtype.type(0)
        for i in range(d):
            y += factor[i] * (x[i] - centre[i])
        total -= x.dtype.type(0.5) * y * y
    return total


@inner
def _features(maps, at, side, x, tile):
    """Write the logs of a row's features, or their values where these share a log scale; return the row's log scale."""
    constants, table = maps[1], maps[2]
    phi, place = unpack(map_of(maps, at, side)), window(table, MAP_COLUMNS * (2 * at + side), MAP_COLUMNS)
    dim, features, frequencies, scale = phi.dim, phi.features, phi.frequencies, x.dtype.type(0)
    if phi.omega.size > 0:
        for a in range(frequencies):
            omega, y = window(phi.omega, a * dim, dim), x.dtype.type(0)
            for i in range(dim):
                y += omega[i] * x[i]
            tile[a] = y
    else:
        for i in range(dim):
            tile[i] = x[i]
    if place[RANK] >= 0:
        begin = place[SCALE] + WEIGHTS
        scale = _row_scale(x, window(constants, begin, constants.size - begin), place[RANK])
    if not phi.per_feature:
        row_values(phi, tile, 0, 0, frequencies, phi.amplitude)
        return scale
    row_logs(phi, tile, 1, tile.size, frequencies)
    for a in range(features):
        tile[a] += phi.offset[a]
    if place[NORMALISED] > 0:
        top = tile[0]
        for a in range(features):
            top = max(top, tile[a])
        total = x.dtype.type(0)
        for a in range(features):
            total += exponential(tile[a] - top)
        scale += x.dtype.type(math.log(phi.amplitude) - math.log(total)) - top
    return scale


@inner
def _weigh_key(per_feature, features, key, scale, peak, decay):
    """Turn what `_features` wrote into weights in the units of new peaks, and set by how much the old sums shrink."""
    nothing, one = key.dtype.type(-np.inf), key.dtype.type(1)
    if not per_feature:
        new = max(peak[0], scale)
        shrink, grow = exponential(peak[0] - new), exponential(scale - new)
        peak[0] = new
        for a in range(features):
            key[a] *= grow
            decay[a] = shrink
        return
    for a in range(features):
        log, old = key[a] + scale, peak[a]
        new = max(old, log)
        peak[a] = new
        if new == nothing:
            key[a], decay[a] = 0, one
        else:
            key[a], decay[a] = exponential(log - new), exponential(old - new)


@inner
def _weigh_query(per_feature, features, query, scale, peak):
    """Turn what `_features` wrote into weights of sums; return the log of their unit."""
    top, nothing = peak[0] + scale, query.dtype.type(-np.inf)
    if per_feature:
        top = nothing
        for a in range(features):
            query[a] += peak[a]
            top = max(top, query[a])
        for a in range(features):
            query[a] = exponential(query[a] - top) if query[a] > nothing else query.dtype.type(0)
        top += scale
    return top


@inner
def _attend_window(query, factor, keys, values, absent, size, scores, near):
    """Set near to the sum of exact weights times values; return the sum of the weights and the log of their unit."""
    d, zero, top = query.size, query.dtype.type(0), query.dtype.type(-np.inf)
    for j in range(size):
        key, total = window(keys, j * d, d), zero
        for i in range(d):
            total += query[i] * key[i]
        scores[j] = total * factor + absent[j]
        top = max(top, scores[j])
    total = zero
    for c in range(d):
        near[c] = zero
    for j in range(size):
        weight, value = exponential(scores[j] - top), window(values, j * d, d)
        total += weight
        for c in range(d):
            near[c] += weight * value[c]
    return total, top


@phase
def attend_by_heads(q, k, v, out, kv, group, d, maps, place, memories, lengths, low, rows, memory):
    """Take a token of each head into its window and sums, and let its queries read both.

    q and out are (rows, kv, group, d), k and v (rows, kv, d); lengths (rows,) the tokens so far of each sequence.
    """
    features, peaks, size = place[FEATURES], place[PEAKS], place[WINDOW]
    wide, row = pad(features, LINE) + LINE, pad(d, LINE)
    key, query = window(memory, 0, wide), window(memory, wide, wide)
    decay = window(memory, 2 * wide, features)
    old_k, old_v = window(memory, 3 * wide, d), window(memory, 3 * wide + row, d)
    far, near = window(memory, 3 * wide + 2 * row, d), window(memory, 3 * wide + 3 * row, d)
    scores = window(memory, 3 * wide + 4 * row, pad(size, LINE))
    zero, nothing, constants, table = q.dtype.type(0), q.dtype.type(-np.inf), maps[1], maps[2]
    for i in range(rows * kv):
        b = low * kv + i
        at = place[FIRST_MAP] + (i % kv if place[OWN_MAPS] > 1 else 0)
        given = window(constants, table[MAP_COLUMNS * 2 * at + SCALE], WEIGHTS)
        phi = unpack(map_of(maps, at, 1))
        sums = window(memories, place[S] + b * features * d, features * d)
        z = window(memories, place[Z] + b * features, features)
        peak = window(memories, place[PEAK] + b * peaks, peaks)
        absent = window(memories, place[ABSENT] + b * size, size)
        keys = window(memories, place[WINDOW_K] + b * size * d, size * d)
        values = window(memories, place[WINDOW_V] + b * size * d, size * d)
        new_k, new_v = window(k, i * d, d), window(v, i * d, d)
        # what leaves the window
        slot = lengths[i // kv] % size if size > 0 else 0
        leaves = size == 0 or absent[slot] == zero
        if leaves:
            for c in range(d):
                old_k[c] = keys[slot * d + c] if size > 0 else new_k[c]
                old_v[c] = values[slot * d + c] if size > 0 else new_v[c]
            scale = _features(maps, at, 1, old_k, key)
            _weigh_key(phi.per_feature, features, key, scale, peak, decay)
            for a in range(features):
                z[a] = decay[a] * z[a] + key[a]
        if size > 0:
            absent[slot] = zero
            for c in range(d):
                keys[slot * d + c] = new_k[c]
                values[slot * d + c] = new_v[c]
        # the queries
        for g in range(group):
            x, target = window(q, (i * group + g) * d, d), window(out, (i * group + g) * d, d)
            scale = _features(maps, at, 0, x, query)
            unit = _weigh_query(phi.per_feature, features, query, scale, peak)
            total = zero
            for c in range(d):
                far[c] = zero
            reader = window(query, 0, features)
            for a in range(features):
                total += reader[a] * z[a]
            if leaves and g == 0:
                renew(sums, sums, decay, window(key, 0, features), reader, old_v, far)
            else:
                read(sums, reader, far)
            own, top = zero, nothing
            if size > 0:
                own, top = _attend_window(x, given[EXACT], keys, values, absent, size, scores, near)
                top += given[BIAS]
            unit = nothing if total == zero else unit
            highest = max(unit, top)
            of_far = zero if unit == nothing else exponential(unit - highest)
            of_near = zero if top == nothing else exponential(top - highest)
            normaliser = of_near * own + of_far * total
            for c in range(d):
                y = of_far * far[c]
                if size > 0:
                    y += of_near * near[c]
                target[c] = zero if normaliser == zero else y / normaliser * given[FACTOR]
