"""One token of linear attention for many heads: one pass over the sums of each head."""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact, phase
from kernattn.ops._numba.codegen.elementary import change_of_unit, log_of, octaves, unit_of, weight
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import LINE, ROWS, lanes
from kernattn.ops._numba.far.clamped import clamp_row, within
from kernattn.ops._numba.far.lifted_keys import absorbed_octaves, lift
from kernattn.ops._numba.far.negligible import clear_negligible_factors, low_normaliser, raise_token
from kernattn.ops._numba.far.row_units import balance_query, own_values, take_off_largest
from kernattn.ops._numba.helper_threads import close_board, make_offer, share_slabs, take_board
from kernattn.ops._numba.kinds import row_logs, row_values
from kernattn.ops._numba.tiles.chunk import in_unit, row_scales
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.outputs import write
from kernattn.ops._numba.tiles.products import panel_product
from kernattn.ops._numba.tiles.rows import as_read, wide_rows
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
            hidden = absorbed_octaves(units[a], raised)
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
        clamp_row(phi, x, window(tile, at, phi.frequencies), scales, j)


class Scratch(NamedTuple):
    """Where tokens of some heads are taken, windows of one memory: many pieces cost more than what is done in them."""

    keys: Any  # (ROWS, row), projections of keys, then their weights
    queries: Any  # (ROWS * groups, row)
    packed: Any  # rows on their way into a product
    decay: Any  # (M,), by how much the old sums shrink
    units: Any  # (M,), those of the new sums where every feature has one
    largest: Any  # (M,)
    spare: Any  # (M,)
    total_z: Any  # (M,), the new sums of features
    value: Any  # (e,)
    total: Any  # (e,), what a query reads
    scales: Any  # (ROWS,), log scales of keys
    parts: Any  # one vector
    row: Any


@inner
def _scratch_size(phi_q, phi_k, e, groups, like):
    """Return (numbers of a row, rows of queries, where windows behind the tiles begin, numbers of such a window)."""
    line = LINE // like.itemsize
    row = pad(max(phi_k.features, phi_q.frequencies, phi_k.frequencies), lanes(like)) + lanes(like)
    readers, wide = pad(ROWS * groups, ROWS), pad(max(phi_k.features, e), line)
    return row, readers, pad((ROWS + readers) * row + readers * max(phi_q.dim, phi_k.dim), line), wide


@phase
def _windows(memory, row, readers, rows, wide, features, e):
    """Return a memory's windows."""
    tiles = (ROWS + readers) * row
    return Scratch(
        window(memory, 0, ROWS * row), window(memory, ROWS * row, readers * row), window(memory, tiles, rows - tiles),
        window(memory, rows, features), window(memory, rows + wide, features),
        window(memory, rows + 2 * wide, features), window(memory, rows + 3 * wide, features),
        window(memory, rows + 4 * wide, features), window(memory, rows + 5 * wide, e),
        window(memory, rows + 6 * wide, e), window(memory, rows + 7 * wide, ROWS),
        window(memory, rows + 8 * wide, lanes(memory)), row,
    )  # fmt: skip


@phase
def _project_keys(phi, k, heads, first, count, given, mask, scratch):
    """Write the projections of keys heads[first : first + count], and their log scales."""
    dim, row, keys, scales = phi.dim, scratch.row, scratch.keys, scratch.scales
    _project(phi, k, heads, first, count, mask, scratch.packed, keys, row)
    inputs, step = (keys, row) if phi.omega_t.size == 0 else (scratch.packed, dim)
    for j in range(count):
        x = window(inputs, j * step, dim)
        row_scales(phi.weights, x, 1, dim, dim, given, heads[first + j], mask, first + j, window(scales, j, 1))
        _hold(phi, x, keys, j * row, window(scales, 0, 0 if given.size > 0 else count), j)


@phase
def _project_queries(phi, q, heads, first, count, no_mask, scratch):
    """Write the projections of queries heads[first : first + count]."""
    _project(phi, q, heads, first, count, no_mask, scratch.packed, scratch.queries, scratch.row)
    for j in range(count):
        x = window(q, heads[first + j] * phi.dim, phi.dim)
        _hold(phi, x, scratch.queries, j * scratch.row, window(scratch.scales, 0, 0), 0)


@phase
def _weigh_by_feature(phi, key, scale, raised, peak, new_peak, b, scratch):
    """Turn a key's projections into weights, and set decays and new peaks, where every feature has a unit."""
    features = phi.features
    row_logs(phi, key, 1, scratch.row, phi.frequencies)
    for a in range(features):
        scratch.decay[a] = peak[b * features + a]
    _key_weights(key, scale, phi.offset, raised, scratch.units, scratch.decay)
    highest = window(new_peak, b * features, features)
    for a in range(features):
        highest[a] = log_of(scratch.units[a])


@phase
def _weigh_by_head(phi, k, at, key, scale, raised, peak, new_peak, z, b, scratch):
    """Turn a key's projections into weights, and set decays and the new peak, where all features share a unit."""
    features, nothing, zero = phi.features, key.dtype.type(-np.inf), key.dtype.type(0)
    own_values(phi, k, at, 1, key, scratch.row, scale, scratch.spare)
    new = max(octaves(peak[b]), unit_of(scale[0]) + raised)
    unit = zero if new == nothing else new
    in_unit(phi, key, 1, scratch.row, scale, unit, raised)
    hidden = absorbed_octaves(unit, raised)
    if hidden > 0:
        added = 0
        for a in range(features):
            added += 1 if key[a] != zero else 0
        hidden = hidden if added > 0 else zero
    shrink = change_of_unit(peak[b], -unit, hidden)
    for a in range(features):
        scratch.decay[a] = shrink
    new_peak[b] = log_of(new)
    if phi.positive:
        clear_negligible_factors(scratch.decay, window(z, b * features, features))


@phase
def _weigh_query(phi, per_feature, x, reader, scratch):
    """Turn a query's projections into weights of sums in their units."""
    if per_feature:
        row_logs(phi, reader, 1, scratch.row, phi.frequencies)
        if phi.precise > 0 and not within(x, phi.precise):
            take_off_largest(reader, 1, reader.size)
        _query_weights(reader, phi.offset, scratch.units, scratch.largest, scratch.parts)
    else:
        row_values(phi, reader, 0, 0, phi.frequencies, x.dtype.type(1))
        if phi.positive:
            balance_query(phi, x, reader, scratch.spare)


@inner
def advance_heads(phi_q, phi_k, tokens, mask, table, before, out, after, low, high):
    """Take a token for heads low to high of the state, whose new sums may lie where the old ones do.

    Numbers that are replaced pass through scratch memory: a loop that might read what it wrote is not vectorised.
    """
    (s, z, peak), (new_s, new_z, new_peak) = before, after
    phi_q, phi_k = unpack(phi_q), unpack(phi_k)
    features = phi_k.features
    heads, e = z.size // features, s.size // z.size
    groups = table.size // (2 * heads) - 1
    of_k, of_v = window(table, 0, heads), window(table, heads, heads)
    of_q = window(table, 2 * heads, groups * heads)
    of_out = window(table, (2 + groups) * heads, groups * heads)
    tokens = (whole(tokens[0]), whole(tokens[1]), whole(tokens[2]), whole(tokens[3]))
    q, k, v, given = tokens
    row, readers, rows, wide = _scratch_size(phi_q, phi_k, e, groups, v)
    memory = aligned(rows + 9 * wide, v)
    scratch = _windows(memory, row, readers, rows, wide, features, e)
    decay, total_z, value, total = scratch.decay, scratch.total_z, scratch.value, scratch.total
    zero, dim, per_feature = v.dtype.type(0), phi_k.dim, phi_k.per_feature
    positive, low_den = phi_q.positive and phi_k.positive, low_normaliser(v)
    easy = mask.size == 0 and given.size == 0 and e % lanes(v) == 0 and moderates(phi_k, v) and moderates(phi_q, v)
    block = low
    while block < high:
        if easy:
            block = moderate_heads(phi_k, tokens, table, before, out, after, memory, block, high)
            if block == high:
                break
        # projections, of several heads at once: a product of one row is slow
        count = 1 if easy else min(ROWS, high - block)
        _project_keys(phi_k, k, of_k, block, count, given, mask, scratch)
        _project_queries(phi_q, q, of_q, block * groups, count * groups, mask[:0], scratch)
        for j in range(count):
            # the key, in units of the new sums
            b = block + j
            key, there = window(scratch.keys, j * row, features), mask.size == 0 or mask[b]
            raised = lift(window(v, of_v[b] * e, e)) if there else zero
            scale = window(scratch.scales, j, 1)
            if per_feature:
                _weigh_by_feature(phi_k, key, scale[0], raised, peak, new_peak, b, scratch)
            else:
                _weigh_by_head(phi_k, k, of_k[b] * dim, key, scale, raised, peak, new_peak, z, b, scratch)
            old_z, new_z_b = window(z, b * features, features), window(new_z, b * features, features)
            for a in range(features):
                total_z[a] = decay[a] * old_z[a] + key[a]
            for a in range(features):
                new_z_b[a] = total_z[a]
            for c in range(e):
                value[c] = v[of_v[b] * e + c] if there else zero
            # queries: the first one reads the sums with values while they are renewed
            sums = window(new_s, b * features * e, features * e)
            for g in range(groups):
                reader = window(scratch.queries, (j * groups + g) * row, features)
                x = window(q, of_q[b * groups + g] * phi_q.dim, phi_q.dim)
                _weigh_query(phi_q, per_feature, x, reader, scratch)
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
                scratch.parts[0] = normaliser
                write(total, e, 1, e, scratch.parts, out, of_out[b * groups + g] * e)
        block += count


@inner
def _slab(arguments, low, high):
    advance_heads(*(arguments + (low, high)))  # noqa: RUF005


_offer = make_offer(_slab)


@inner
def _wide(rows, memory, at):
    """Return rows as floats, and where they begin: compiled parts may not return an array alone."""
    count = rows[1].size
    return wide_rows(as_read(rows), 0, count, window(memory, at, count))


@inner
def _wide_room(out, memory, at):
    """Return where outputs are written as floats."""
    floats, bits, kind = out
    return (whole(floats), 0) if kind == 0 else (window(memory, at, bits.size), 0)


@compiled
def advance(phi_q, phi_k, tokens, mask, table, before, out, after, board, slabs):
    """Take a token for all heads of the state.

    Everything is flat: tokens are q, k, v and the log scales of k that are given; before and after s, z and peak. The
    table numbers the heads of k and v for each head of the state, then those of q that read it, and of out.
    """
    (q, k, v, given), (_, bits, kind), line = tokens, out, LINE // before[0].itemsize
    at_k = pad(q[1].size, line)
    at_v = at_k + pad(k[1].size, line)
    at_out = at_v + pad(v[1].size, line)
    memory = aligned(at_out + bits.size, before[0])  # for what has 16 bits
    tokens = (_wide(q, memory, 0)[0], _wide(k, memory, at_k)[0], _wide(v, memory, at_v)[0], given)
    arguments = (phi_q, phi_k, tokens, mask, table, before, _wide_room(out, memory, at_out)[0], after)
    count = before[1].size // unpack(phi_k).features
    if slabs < 2 or take_board(board):
        advance_heads(*(arguments + (0, count)))  # noqa: RUF005
    else:
        _offer(board, arguments)
        share_slabs(board, slabs, count)
        close_board(board)
    if kind != 0:
        narrow(memory, at_out, bits.size, bits, kind, 0)
