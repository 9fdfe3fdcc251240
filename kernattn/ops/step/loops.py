"""One token of linear attention for many heads: one pass over the sums of each head."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import change_of_unit, log_of, octaves, unit_of, weight
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import LINE, ROWS, lanes
from kernattn.ops._numba.far.clamped import hold, within
from kernattn.ops._numba.far.lifted_keys import absorbed, lift
from kernattn.ops._numba.far.negligible import drop_faint, low_normaliser, raise_token
from kernattn.ops._numba.far.row_units import balance_query, own_values, take_off_largest
from kernattn.ops._numba.helper_threads import close, offer_of, open_, taken
from kernattn.ops._numba.kinds import row_logs, row_values
from kernattn.ops._numba.tiles.chunk import in_unit, row_scales
from kernattn.ops._numba.tiles.maps import unpacked
from kernattn.ops._numba.tiles.outputs import write
from kernattn.ops._numba.tiles.products import panel_product
from kernattn.ops.step.moderate_loops import moderate_heads, moderates
from kernattn.ops.step.sums_loops import read, renew


@inner
def _largest(x, parts):
    """Return max_i x_i, vector by vector."""
    width = lanes(x)
    whole = x.size // width * width
    for i in range(width):
        parts[i] = x[0]
    for at in range(0, whole, width):
        y = window(x, at, width)
        for i in range(width):
            parts[i] = y[i] if y[i] > parts[i] else parts[i]
    best = parts[0]
    for i in range(width):
        best = max(best, parts[i])
    for i in range(whole, x.size):
        best = max(best, x[i])
    return best


@inner_exact
def _key_weights(x, scale, offset, raised, units, decay):
    """Turn logs of the key's features into weights in the new units, and old peaks into how much their sums shrink."""
    nothing, zero = x.dtype.type(-np.inf), x.dtype.type(0)
    for a in range(x.size):
        log, old = (x[a] + scale) + offset[a], decay[a]
        last, own = octaves(old), unit_of(log) + raised
        new = own if own > last else last
        unit = zero if new == nothing else new
        units[a] = new
        x[a] = weight(log, zero, unit)
        decay[a] = change_of_unit(old, zero, unit)
    if raised > 0:
        for a in range(x.size):
            hidden = absorbed(units[a], raised)
            if hidden > 0 and x[a] != zero:  # else nothing is added to the old sum, and it needs no room
                x[a] *= weight(zero, zero, hidden)
                decay[a] *= weight(zero, zero, hidden)


@inner_exact
def _query_weights(x, offset, units, whole, parts):
    """Turn logs of the query's features into e^log 2^(unit - highest)."""
    nothing, zero = x.dtype.type(-np.inf), x.dtype.type(0)
    for a in range(x.size):
        x[a] += offset[a]
        whole[a] = octaves(x[a]) + units[a]
    highest = _largest(whole, parts)
    highest = zero if highest == nothing else highest
    for a in range(x.size):
        x[a] = weight(x[a], units[a], highest)


@inner
def _project(phi, x, heads, first, count, mask, packed, tile, row):
    """Write the projections of rows heads[first : first + count] of x, token-major; masked ones count as zeros."""
    dim, elementwise = phi.dim, phi.omega_t.size == 0
    for j in range(count):
        source = window(x, heads[first + j] * dim, dim)
        copy = window(tile, j * row, dim) if elementwise else window(packed, j * dim, dim)
        there = mask.size == 0 or mask[first + j]
        for i in range(dim):
            copy[i] = source[i] if there else 0
    if not elementwise:
        panel_product(packed, count, dim, phi.omega_t, 0, phi.frequencies, tile, row)


@inner
def _hold(phi, x, tile, at, scales, j):
    """Hold the projections of one far row, and its log scale unless there is no room for it."""
    if phi.reach > 0 and not within(x, phi.reach):
        hold(phi, x, window(tile, at, phi.frequencies), scales, j)


@inner
def advance_heads(phi_q, phi_k, tokens, mask, table, before, out, after, low, high):
    """Take a token for heads low to high of the state, whose new sums may lie where the old ones do.

    Numbers that are replaced pass through scratch memory: a loop that might read what it wrote is not vectorised.
    """
    (s, z, peak), (new_s, new_z, new_peak) = before, after
    phi_q, phi_k = unpacked(phi_q), unpacked(phi_k)
    features = phi_k.features
    heads, e = z.size // features, s.size // z.size
    groups = table.size // (2 * heads) - 1
    of_k, of_v = window(table, 0, heads), window(table, heads, heads)
    of_q = window(table, 2 * heads, groups * heads)
    of_out = window(table, (2 + groups) * heads, groups * heads)
    tokens = (whole(tokens[0]), whole(tokens[1]), whole(tokens[2]), whole(tokens[3]))
    q, k, v, given = tokens
    row = pad(max(features, phi_q.frequencies, phi_k.frequencies), lanes(v)) + lanes(v)
    readers, wide = pad(ROWS * groups, ROWS), pad(max(features, e), LINE // v.itemsize)
    tiles = (ROWS + readers) * row
    rows = pad(tiles + readers * max(phi_q.dim, phi_k.dim), LINE // v.itemsize)
    memory = aligned(rows + 9 * wide, v)  # one piece: many cost more than what is done in them
    keys, queries = window(memory, 0, ROWS * row), window(memory, ROWS * row, readers * row)
    packed = window(memory, tiles, rows - tiles)
    decay, units = window(memory, rows, features), window(memory, rows + wide, features)
    largest, spare = window(memory, rows + 2 * wide, features), window(memory, rows + 3 * wide, features)
    total_z, value = window(memory, rows + 4 * wide, features), window(memory, rows + 5 * wide, e)
    total, scales = window(memory, rows + 6 * wide, e), window(memory, rows + 7 * wide, ROWS)
    parts = window(memory, rows + 8 * wide, lanes(v))
    nothing, zero, one = v.dtype.type(-np.inf), v.dtype.type(0), v.dtype.type(1)
    positive, low_den = phi_q.positive and phi_k.positive, low_normaliser(v)
    dim, per_feature = phi_k.dim, phi_k.per_feature
    inputs, step = (keys, row) if phi_k.omega_t.size == 0 else (packed, dim)
    easy = mask.size == 0 and given.size == 0 and e % lanes(v) == 0 and moderates(phi_k, v) and moderates(phi_q, v)
    block = low
    while block < high:
        if easy:
            block = moderate_heads(phi_q, phi_k, tokens, table, before, out, after, memory, block, high)
            if block == high:
                break
        count = 1 if easy else min(ROWS, high - block)
        _project(phi_k, k, of_k, block, count, mask, packed, keys, row)
        for j in range(count):
            x = window(inputs, j * step, dim)
            row_scales(phi_k.weights, x, 1, dim, dim, given, of_k[block + j], mask, block + j, window(scales, j, 1))
            _hold(phi_k, x, keys, j * row, window(scales, 0, 0 if given.size > 0 else count), j)
        _project(phi_q, q, of_q, block * groups, count * groups, mask[:0], packed, queries, row)
        for j in range(count * groups):
            x = window(q, of_q[block * groups + j] * phi_q.dim, phi_q.dim)
            _hold(phi_q, x, queries, j * row, window(scales, 0, 0), 0)
        for j in range(count):
            b = block + j
            key, there = window(keys, j * row, features), mask.size == 0 or mask[b]
            raised = lift(window(v, of_v[b] * e, e)) if there else zero
            if per_feature:
                row_logs(phi_k, key, 1, row, phi_k.frequencies)
                for a in range(features):
                    decay[a] = peak[b * features + a]
                _key_weights(key, scales[j], phi_k.offset, raised, units, decay)
                highest = window(new_peak, b * features, features)
                for a in range(features):
                    highest[a] = log_of(units[a])
            else:
                scale = window(scales, j, 1)
                own_values(phi_k, k, of_k[b] * dim, 1, key, row, scale, spare)
                new = max(octaves(peak[b]), unit_of(scales[j]) + raised)
                unit = zero if new == nothing else new
                in_unit(phi_k, key, 1, row, scale, unit, raised)
                hidden = absorbed(unit, raised)
                if hidden > 0:
                    added = 0
                    for a in range(features):
                        added += 1 if key[a] != zero else 0
                    hidden = hidden if added > 0 else zero
                shrink = change_of_unit(peak[b], -unit, hidden)
                for a in range(features):
                    decay[a] = shrink
                new_peak[b] = log_of(new)
                if phi_k.positive:
                    drop_faint(decay, window(z, b * features, features))
            old_z, new_z_b = window(z, b * features, features), window(new_z, b * features, features)
            for a in range(features):
                total_z[a] = decay[a] * old_z[a] + key[a]
            for a in range(features):
                new_z_b[a] = total_z[a]
            for c in range(e):
                value[c] = v[of_v[b] * e + c] if there else zero
            sums = window(new_s, b * features * e, features * e)
            for g in range(groups):
                reader = window(queries, (j * groups + g) * row, features)
                x = window(q, of_q[b * groups + g] * phi_q.dim, phi_q.dim)
                if per_feature:
                    row_logs(phi_q, reader, 1, row, phi_q.frequencies)
                    if phi_q.precise > 0 and not within(x, phi_q.precise):
                        take_off_largest(reader, 1, features)
                    _query_weights(reader, phi_q.offset, units, largest, parts)
                else:
                    row_values(phi_q, reader, 0, 0, phi_q.frequencies, one)
                    if phi_q.positive:
                        balance_query(phi_q, x, reader, spare)
                for c in range(e):
                    total[c] = zero
                if g > 0:
                    read(sums, reader, total)
                else:
                    renew(window(s, b * features * e, features * e), sums, decay, key, reader, value, total)
                normaliser = zero
                for a in range(features):
                    normaliser += reader[a] * total_z[a]
                if positive and normaliser < low_den:
                    normaliser = raise_token(reader, total_z, normaliser)
                    for c in range(e):
                        total[c] = zero
                    read(sums, reader, total)
                parts[0] = normaliser
                write(total, e, 1, e, parts, out, of_out[b * groups + g] * e)
        block += count


@inner
def _slab(arguments, low, high):
    advance_heads(*(arguments + (low, high)))  # noqa: RUF005


_offer = offer_of(_slab)


@compiled
def advance(phi_q, phi_k, tokens, mask, table, before, out, after, board, slabs):
    """Take a token for all heads of the state.

    Everything is flat: tokens are q, k, v and the log scales of k that are given; before and after s, z and peak. The
    table numbers the heads of k and v for each head of the state, then those of q that read it, and of out.
    """
    arguments = (phi_q, phi_k, tokens, mask, table, before, out, after)
    count = before[1].size // unpacked(phi_k).features
    if slabs < 2 or taken(board):
        advance_heads(*(arguments + (0, count)))  # noqa: RUF005
    else:
        _offer(board, arguments)
        open_(board, slabs, count)
        close(board)
