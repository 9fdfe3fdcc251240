"""A walk along a sequence, chunk by chunk, a state in cache: rows are read where they lie, if they lie well."""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import ROWS
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.dots import dots
from kernattn.ops._numba.tiles.readings import read
from kernattn.ops._numba.tiles.rows import as_read, given_rows
from kernattn.ops.gated.carry_loops import (
    carry_channels_late,
    carry_late,
    least_lack,
    size_of_row,
    size_of_state,
    size_of_written,
)
from kernattn.ops.gated.decays_loops import decay_pairs, load_decays, sum_logs
from kernattn.ops.gated.levels_loops import levels_for, prepare, score_levels
from kernattn.ops.gated.loops import (
    BETA,
    DECAY,
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    STATE,
    STEPS,
    K,
    V,
    as_loops_see,
    begins_anew,
    fade,
    is_finite,
    load_rows,
    load_state,
    load_strength,
    room_of_rows,
    row_of,
    rows_of_one_chunk,
    score_rows,
    some_nan,
    substitute,
    write_row,
)


@inner
def _lie_well(x, step, rows, width, mask, normalise):
    """Can products read these rows where they lie? In whole blocks, one row behind the other."""
    floats, _, kind = x
    whole_blocks = rows % ROWS == 0 and width == tile_rows(width, floats)
    return kind == 0 and not normalise and mask.size == 0 and step == width and whole_blocks


@inner
def sum_of_rows(x, at, step, rows, width):
    """Return the sum of absolute values of rows; NaN where it is not told at once that they are finite."""
    floats, _, kind = x
    if kind == 0 and step == 0:
        return rows * size_of_row(floats, at, width)
    if kind != 0 or step != width:
        return np.nan
    return size_of_row(floats, at, rows * width)


@inner
def is_plain(given, own, start, rows, channels):
    """Are all these tokens there, of one sequence, with finite strengths, and decays that are numbers?"""
    at, step = row_of(own, DECAY, start), own[STEPS + DECAY]
    if given.mask.size > 0 or given.fresh.size > 0:
        return False
    if given_rows(given.logs):
        if channels == 1 and not sum_of_rows(given.logs, at, step, rows, 1) < np.inf:
            return False
        if channels > 1 and (step != channels or some_nan(given.logs, at, rows * channels)):
            return False
    if given.beta.size == 0:
        return True
    return own[STEPS + BETA] == 1 and finite(window(given.beta, row_of(own, BETA, start), rows))


@inner
def _shares(table, reads, head, other):
    """Do two states have the same keys, and one reader each with the same queries?"""
    one, two = table[head], table[other]
    return one[K] == two[K] and reads.shape[1] == 1 and reads[head, 0, QUERY] == reads[other, 0, QUERY]


@phase
def _keep_scores(given, own, q, at_q, step_q, sizes, room, kept, sums):
    """Write the scores of all chunks before they decay, which heads of the same keys and queries have in common."""
    n, d, _, _, chunk = sizes
    row, step, no_mask = room.row_d, own[STEPS + K], window(given.mask, 0, 0)
    for start in range(0, n, chunk):
        rows, at, i = min(chunk, n - start), row_of(own, K, start), start // chunk
        sums[i] = sum_of_rows(given.k, at, step, rows, d)
        keys, row_k = rows_of(given.k, at, step, rows, d, no_mask, 0, given.normalise, room.keys, row)
        at = at_q + start * step_q
        queries, row_q = rows_of(q, at, step_q, rows, d, no_mask, 0, given.normalise, room.queries, row)
        dots(keys, 0, row_k, queries, 0, row_q, d, kept, i * room.size * room.size, room.size, rows, rows, True)


@inner
def rows_of(x, at, step, rows, width, mask, mask_at, normalise, tile, row):
    """Return where rows lie that products read, and how far one is from the next: as given, or in a tile."""
    if _lie_well(x, step, rows, width, mask, normalise):
        return window(x[0], at, rows * width), step
    load_rows(x, at, step, rows, width, mask, mask_at, normalise, tile, row)
    return whole(tile), row


@phase
def _write_chunk(given, own, start, keys, row, values, row_v, rows, sizes, state, room, levels):
    """Write what tokens write into room.written: values, less what keys read, times beta."""
    n, d, e, channels, _ = sizes
    at, step, mask_at = row_of(own, BETA, start), own[STEPS + BETA], own[MASK] * n + start
    load_strength(given.beta, at, step, rows, given.mask, mask_at, room)
    if channels == 1:
        score_rows(keys, row, keys, row, rows, d, room, room.reads)
    else:
        score_levels(keys, row, False, rows, d, room, levels, room.reads)
    factors, of, row_of_reads = whole(room.since), whole(keys), row
    if channels > 1:
        factors, of, row_of_reads = whole(levels.ones), whole(levels.rows), room.row_d
    read(
        of, row_of_reads, state, room.row_e, d, factors, room.reads, room.size, values, row_v, 0, state.dtype.type(1),
        room.num, 0, room.row_e, rows, e,
    )  # fmt: skip
    substitute(values, row_v, rows, e, room)


@phase
def _rows_of_spoiled(rows, d, e, channels, delta, state, room):
    """Return how many rows a chunk has whose state, or first token, is not finite: products have zeros times NaN.

    With a delta rule, one; else those before one at which a channel lets nothing remain. Of what the first one lets
    nothing remain, the state's rows become 0.
    """
    if channels > 1:
        for a in range(d):
            if decayed(room.logs[a]) == 0:
                window(state, a * room.row_e, e)[:] = 0
    if delta or channels == 1:
        return 1 if delta else rows
    for i in range(1, rows):
        y = window(room.logs, i * d, d)
        for c in range(d):
            if decayed(y[c]) == 0:
                return i
    return rows


@inner
def _finite_rows(x, row, width, rows):
    """Return how many rows come before one that is not finite."""
    if size_of_row(x, 0, rows * row) < np.inf:
        return rows
    for i in range(rows):
        if not finite(window(x, i * row, width)):
            return i
    return rows


@phase
def _read_chunk(
    kept, q, at, step, normalise, keys, row, values, row_v, scale, out, to, rows, sizes, no_mask, state, room, levels
):
    """Write what a chunk's queries read."""
    _, d, e, channels, _ = sizes
    factors = whole(room.since)
    if channels == 1:
        queries, row_q = rows_of(q, at, step, rows, d, no_mask, 0, normalise, room.queries, room.row_d)
        if kept.size > 0:
            fade(kept, 0, rows, room, room.scores)
        else:
            score_rows(keys, row, queries, row_q, rows, d, room, room.scores)
    else:
        load_rows(q, at, step, rows, d, no_mask, 0, normalise, room.queries, room.row_d)
        score_levels(room.queries, room.row_d, True, rows, d, room, levels, room.scores)
        factors, queries, row_q = whole(levels.ones), whole(levels.rows), room.row_d
    straight = _lie_well(out, e, rows, e, no_mask, False)
    target, first, row_t, factor = whole(room.num), 0, room.row_e, state.dtype.type(1)
    if straight:
        target, first, row_t, factor = whole(out[0]), to * e, e, scale
    read(
        queries, row_q, state, room.row_e, d, factors, room.scores, room.size, values, row_v, rows, factor,
        target, first, row_t, rows, e,
    )  # fmt: skip
    if not straight:
        for i in range(rows):
            write_row(room.num, i * room.row_e, e, scale, out, (to + i) * e)


@compiled
def run_gates(sizes, given, q, before, table, reads, scale, out, after, low, high):
    """Take states low to high through all tokens. sizes: n, d, e, channels of a decay, tokens of a chunk."""
    given, q, before, out = as_loops_see(given), as_read(q), whole(before), as_read(out)
    n, d, e, channels, chunk = sizes
    room = room_of_rows(channels, chunk, tile_rows(d, before), tile_rows(e, before), False, before)
    row_d, row_e = room.row_d, room.row_e
    levels = levels_for(channels, room, before)
    state, lacks = aligned(row_d * row_e, before), np.zeros(channels)
    no_mask, delta, area = window(given.mask, 0, 0), given.beta.size > 0, room.size * room.size
    kept, sums = aligned(0, before), np.empty(0)
    may_share = channels == 1 and not delta and given.mask.size == 0
    for head in range(low, high):
        own = table[head]
        again = may_share and head > low and _shares(table, reads, head, head - 1)
        if may_share and not again and head + 1 < high and _shares(table, reads, head, head + 1):
            again = True
            if kept.size == 0:
                kept, sums = aligned((n + chunk - 1) // chunk * area, before), np.empty((n + chunk - 1) // chunk)
            first, step = reads[head, 0, QUERY], reads[head, 0, QUERY_STEP]
            _keep_scores(given, own, q, first, step, sizes, room, kept, sums)
        load_state(before, own[STATE], d, e, row_e, state)
        start, size, most = 0, size_of_state(d, e, state, room), chunk
        alike = 0  # tokens of the last chunk, where all tokens have the same decay
        lacks[:] = 0
        while start < n:
            if not size < np.inf:  # what is not finite may have been forgotten
                size = size_of_state(d, e, state, room)
            rows, known, i = min(most, n - start), again and start % chunk == 0, start // chunk
            at_k, at_v = row_of(own, K, start), row_of(own, V, start)
            of_keys = sums[i] if known else sum_of_rows(given.k, at_k, own[STEPS + K], rows, d)
            of_values = sum_of_rows(given.v, at_v, own[STEPS + V], rows, e)
            told = of_keys < np.inf and of_values < np.inf and is_plain(given, own, start, rows, channels)
            if not told:
                rows = rows_of_one_chunk(given, own, start, rows, sizes)
                if begins_anew(given, own, start, sizes):
                    state[:] = 0
                    size = 0.0
                if not is_finite(given, own, start, sizes):
                    size = np.nan
            mask_at = own[MASK] * n + start
            at, step = row_of(own, DECAY, start), own[STEPS + DECAY]
            load_decays(given.logs, at, step, rows, channels, given.mask, mask_at, given.fresh, room)
            if not size < np.inf:
                rows = _rows_of_spoiled(rows, d, e, channels, delta, state, room)
            scores = window(kept, i * area, area if known and rows == min(chunk, n - start) else 0)
            for c in range(channels):
                room.lack[c] = lacks[c]
            keys, row, step = whole(levels.keys), row_d, own[STEPS + K]
            if channels == 1:
                keys, row = rows_of(
                    given.k, at_k, step, rows, d, given.mask, mask_at, given.normalise, room.keys, row_d
                )  # fmt: skip
            else:
                load_rows(given.k, at_k, step, rows, d, given.mask, mask_at, given.normalise, levels.keys, row_d)
            step = own[STEPS + V]
            values, row_v = rows_of(given.v, at_v, step, rows, e, given.mask, mask_at, False, room.written, row_e)
            if channels == 1:
                sum_logs(rows, channels, room)
                always = told and own[STEPS + DECAY] == 0
                if not (always and rows == alike):
                    decay_pairs(rows, room)
                alike = rows if always else 0
            else:
                prepare(rows, d, room, levels)
            if delta:
                _write_chunk(given, own, start, keys, row, values, row_v, rows, sizes, state, room, levels)
                most = _finite_rows(room.written, row_e, e, rows)
                if most < rows and rows > 1:  # zeros of a chunk's products times what overflowed are no zeros
                    most = max(most, 1)
                    continue
                values, row_v, most = whole(room.written), row_e, chunk
            for reader in range(reads.shape[1]):
                step_q, to = reads[head, reader, QUERY_STEP], reads[head, reader, OUT] * n + start
                at_q = reads[head, reader, QUERY] + start * step_q
                _read_chunk(
                    scores, q, at_q, step_q, given.normalise, keys, row, values, row_v, scale, out, to, rows, sizes,
                    no_mask, state, room, levels,
                )  # fmt: skip
            if told and not given.normalise:
                size += of_keys * (size_of_row(values, 0, rows * row_v) if delta else of_values)
            else:
                size += size_of_written(keys, row, values, row_v, rows, d, e)
            least = least_lack(size, before)
            if channels == 1:
                carry_late(keys, row, values, row_v, rows, d, e, least, lacks, state, room)
            else:
                carry_channels_late(values, row_v, rows, d, e, least, lacks, state, room, levels)
            start += rows
        for a in range(d):
            factor = before.dtype.type(math.exp(lacks[a if channels > 1 else 0]))
            x, y = window(state, a * row_e, e), window(after, (head * d + a) * e, e)
            for c in range(e):
                y[c] = factor * x[c]
