"""Cotangents where all channels of a head have one decay and nothing is erased: chunks from the last to the first.

States, and their cotangents, are kept turned, (e, d): products with rows of values and of outputs' cotangents are rows
of keys then, as wide as these, and only the cotangents of values are turned. Neither scores nor their cotangents are
made of pairs that do not see each other.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, copy, tile_rows, unset, whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, multiply_add, store, sum_of
from kernattn.ops._numba.tiles.dots import dots
from kernattn.ops._numba.tiles.products import FULL, LATER, LOWER, fading_product, product, transpose
from kernattn.ops._numba.tiles.rows import as_read, given_rows
from kernattn.ops.gated.decays_loops import decay_pairs, load_decays, sum_logs
from kernattn.ops.gated.loops import (
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
    dot,
    room_of_rows,
    row_of,
    score_rows,
)
from kernattn.ops.gated.walk_loops import rows_of
from kernattn.ops.gated_vjp.groups_loops import cut, groups_of
from kernattn.ops.gated_vjp.heads_loops import pull_pairs, tell_logs
from kernattn.ops.gated_vjp.rows_loops import load_cotangents, write_rows, write_tokens


class Plain(NamedTuple):
    """Tiles of cotangents of a chunk of `size` tokens."""

    out: Any  # (size, row_e), of outputs
    since: Any  # (size, row_e), these, decayed from the start
    queries: Any  # (size, row_d)
    keys: Any  # (size, row_d)
    values: Any  # (size, row_e)
    turned: Any  # (row_e, size), of values
    turned_keys: Any  # (row_d, size)
    pairs: Any  # (size, size), of scores [j, i]
    logs: Any  # (size,)
    earlier: Any  # (size,), of pairs of i with all before a token
    starts: Any  # (size,), of decays from the start to a token
    ends: Any  # (size,), of those from a token to the end
    state: Any  # (row_e, row_d), of the state after the chunk, turned; in the end, of that at its start
    spare: Any  # (row_d,)


@inner
def _tiles(room, like):
    size, row_d, row_e = room.size, room.row_d, room.row_e
    return Plain(
        aligned(size * row_e, like), aligned(size * row_e, like), aligned(size * row_d, like),
        aligned(size * row_d, like), aligned(size * row_e, like), aligned(row_e * size, like),
        aligned(row_d * size, like), aligned(size * size, like), aligned(size, like), aligned(size, like),
        aligned(size, like), aligned(size, like), aligned(row_d * row_e, like), aligned(row_d, like),
    )  # fmt: skip


@phase
def _load_turned(states, at, d, e, row, state):
    """Load the state of a head, turned; zeros where `at` is below 0."""
    if at < 0:
        state[:] = 0
    else:
        transpose(states, at * d * e, e, d, e, state, 0, row)


@inner
def _walk(given, own, begins, first, count, to_end, sizes, states, stride, room, tiles):
    """Carry the turned state from chunk to chunk.

    That of chunk i is read at states[i stride], and that after it written one stride on; after the last, `to_end` asks.
    """
    n, d, e, _, _ = sizes
    row_d, row_e, area = room.row_d, room.row_e, room.row_d * room.row_e
    left = window(room.since, 0, room.size)
    for i in range(count):
        start, rows = begins[first + i], begins[first + i + 1] - begins[first + i]
        state, after, mask_at = window(states, i * stride, area), (i + 1) * stride, own[MASK] * n + start
        if given.fresh.size > 0 and given.fresh[mask_at]:
            state[:] = 0
        if i + 1 == count and not to_end:
            break
        at, step = row_of(own, DECAY, start), own[STEPS + DECAY]
        load_decays(given.logs, at, step, rows, 1, given.mask, mask_at, given.fresh, room)
        log = room.logs.dtype.type(0)
        for back in range(rows):
            left[rows - 1 - back] = log
            log += room.logs[rows - 1 - back]
        for j in range(rows):
            left[j] = decayed(left[j])
        at_k, at_v = row_of(own, K, start), row_of(own, V, start)
        keys, row_k = rows_of(
            given.k, at_k, own[STEPS + K], rows, d, given.mask, mask_at, given.normalise, room.keys, row_d
        )  # fmt: skip
        values, row_v = rows_of(
            given.v, at_v, own[STEPS + V], rows, e, given.mask, mask_at, False, room.written, row_e
        )  # fmt: skip
        for j in range(rows):
            _scale(values, j * row_v, e, left[j], tiles.since, j * row_e)
        fading_product(
            tiles.since, 0, 1, row_e, keys, 0, row_k, state, 0, decayed(log), states, after, row_d, e, d, rows
        )  # fmt: skip


@inner
def _scale(x, at, count, factor, y, to):
    """Write a row times a factor; nothing is left of anything where that is 0."""
    last = count // lanes(y) * lanes(y)
    if factor == 0:
        window(y, to, count)[:] = 0
        return
    for c in range(0, last, lanes(y)):
        store(every(load(y, to), factor) * load(x, at + c), y, to + c)
    for c in range(last, count):
        y[to + c] = factor * x[at + c]


@phase
def _of_state(state, d, e, since, room, tiles):
    """Return what the decay of the state over the chunk is told."""
    row, lane = room.row_d, lanes(state)
    across, told = d // lane * lane, state.dtype.type(0)
    one = every(load(state, 0), 0)
    other = one
    for c in range(e):
        for a in range(0, across, 2 * lane):
            at = c * row + a
            one = multiply_add(load(tiles.state, at), load(state, at), one)
            if a + lane < across:
                other = multiply_add(load(tiles.state, at + lane), load(state, at + lane), other)
        for a in range(across, d):
            told += tiles.state[c * row + a] * state[c * row + a]
    return since * (told + sum_of(one + other)) if since != 0 else since


@phase
def _begin(keys, row_k, values, row_v, rows, d, e, state, room, tiles):
    """Begin the cotangents of values, keys and logs by what is left at the end of the chunk."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    transpose(keys, 0, row_k, rows, d, tiles.turned_keys, 0, size)
    product(values, 0, row_v, 1, tiles.state, 0, row_d, tiles.keys, 0, row_d, rows, d, e, False, FULL)
    product(tiles.state, 0, row_d, 1, tiles.turned_keys, 0, size, tiles.turned, 0, size, e, rows, d, False, FULL)
    transpose(tiles.turned, 0, size, e, rows, tiles.values, 0, row_e)
    for j in range(rows):
        left = room.between[j * size + rows - 1]
        _scale(tiles.keys, j * row_d, d, left, tiles.keys, j * row_d)
        _scale(tiles.values, j * row_e, e, left, tiles.values, j * row_e)
        tiles.ends[j] = dot(keys, j * row_k, tiles.keys, j * row_d, d)
        tiles.starts[j], tiles.logs[j] = 0, 0
    room.total[0] = _of_state(state, d, e, room.since[rows - 1], room, tiles)


@phase
def _read_back(keys, row_k, values, row_v, queries, row_q, again, rows, d, e, state, room, tiles):
    """Take back what queries read, by cotangents tiles.out; `again` where they are not the first readers."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    score_rows(keys, row_k, queries, row_q, rows, d, room, room.scores)
    product(room.scores, 0, size, 1, tiles.out, 0, row_e, tiles.values, 0, row_e, rows, e, rows, True, LATER)
    dots(values, 0, row_v, tiles.out, 0, row_e, e, tiles.pairs, 0, size, rows, rows, True)
    pull_pairs(room.scores, 0, rows, room, tiles)
    product(tiles.out, 0, row_e, 1, state, 0, row_d, tiles.queries, 0, row_d, rows, d, e, False, FULL)
    for i in range(rows):
        since = room.since[i]
        _scale(tiles.queries, i * row_d, d, since, tiles.queries, i * row_d)
        tiles.starts[i] += dot(queries, i * row_q, tiles.queries, i * row_d, d)
        _scale(tiles.out, i * row_e, e, since, tiles.since, i * row_e)
    product(tiles.pairs, 0, 1, size, keys, 0, row_k, tiles.queries, 0, row_d, rows, d, rows, True, LOWER)
    product(tiles.pairs, 0, size, 1, queries, 0, row_q, tiles.keys, 0, row_d, rows, d, rows, True, LATER)
    factor = room.since.dtype.type(1) if again else room.since[rows - 1]
    fading_product(
        tiles.since, 0, 1, row_e, queries, 0, row_q, tiles.state, 0, factor, tiles.state, 0, row_d, e, d, rows
    )  # fmt: skip


@compiled
def pull_plain(sizes, given, q, before, g_out, g_after, table, reads, scale, found, low, high):
    """Take states low to high back through all tokens."""
    given, q, before, g_out, g_after = as_loops_see(given), as_read(q), whole(before), as_read(g_out), whole(g_after)
    n, d, e, _, chunk = sizes
    room = room_of_rows(1, chunk, tile_rows(d, before), tile_rows(e, before), False, before)
    row_d, row_e, tiles = room.row_d, room.row_e, _tiles(room, before)
    area, begins, heard = row_d * row_e, np.empty(n + 1, np.int64), np.zeros(room.size, np.bool_)
    kept, starts = unset(0, before), unset(0, before)
    for head in range(low, high):
        own = table[head]
        always = own[STEPS + DECAY] == 0 and given.mask.size == 0 and given.fresh.size == 0
        alike = 0  # tokens of the chunk before; where a decay is `always` the same, those between them are
        chunks = cut(given, own, sizes, begins)
        together, groups = groups_of(chunks, area)
        if kept.size < groups * area:  # one room for all heads: fresh memory takes longer than what is done in it
            kept = unset(groups * area, before)
        if starts.size < together * area:
            starts = unset(together * area, before)
        _load_turned(before, own[STATE], d, e, row_d, window(kept, 0, area))
        for group in range(groups - 1):
            copy(kept, group * area, area, kept, (group + 1) * area)
            state = window(kept, (group + 1) * area, area)
            _walk(given, own, begins, group * together, together, True, sizes, state, 0, room, tiles)
        _load_turned(g_after, head if g_after.size > 0 else -1, d, e, row_d, tiles.state)
        for back_group in range(groups):
            group = groups - 1 - back_group
            first = group * together
            count = min(together, chunks - first)
            copy(kept, group * area, area, starts, 0)
            _walk(given, own, begins, first, count, False, sizes, whole(starts), area, room, tiles)
            for back_chunk in range(count):
                c = count - 1 - back_chunk
                start, state = begins[first + c], window(starts, c * area, area)
                rows, mask_at = begins[first + c + 1] - start, own[MASK] * n + start
                at_k, step_k, at_v = row_of(own, K, start), own[STEPS + K], row_of(own, V, start)
                at_logs, step_logs = row_of(own, DECAY, start), own[STEPS + DECAY]
                keys, row_k = rows_of(
                    given.k, at_k, step_k, rows, d, given.mask, mask_at, given.normalise, room.keys, row_d
                )  # fmt: skip
                values, row_v = rows_of(
                    given.v, at_v, own[STEPS + V], rows, e, given.mask, mask_at, False, room.written, row_e
                )  # fmt: skip
                load_decays(given.logs, at_logs, step_logs, rows, 1, given.mask, mask_at, given.fresh, room)
                sum_logs(rows, 1, room)
                if not (always and rows == alike):
                    decay_pairs(rows, room)
                alike = rows
                _begin(keys, row_k, values, row_v, rows, d, e, state, room, tiles)
                for reader in range(reads.shape[1]):
                    step_q, at_out = reads[head, reader, QUERY_STEP], reads[head, reader, OUT] * n + start
                    at_q = reads[head, reader, QUERY] + start * step_q
                    silent = load_cotangents(g_out, at_out * e, rows, e, scale, room, tiles, heard)
                    queries, row_q = rows_of(
                        q, at_q, step_q, rows, d, window(heard, 0, rows if silent else 0), 0, given.normalise,
                        room.queries, row_d,
                    )  # fmt: skip
                    _read_back(
                        keys, row_k, values, row_v, queries, row_q, reader > 0, rows, d, e, state, room, tiles
                    )  # fmt: skip
                    write_rows(
                        tiles.queries, row_d, q, at_q, step_q, rows, d, heard, 0, given.normalise, room.queries,
                        tiles.spare, found.q, at_out * d,
                    )  # fmt: skip
                tell_logs(room.total[0], rows, tiles)
                write_tokens(
                    tiles.values, row_e, tiles.keys, row_d, tiles.logs, given, own, head, start, rows, sizes, room.keys,
                    tiles.spare, found,
                )  # fmt: skip
                if given.fresh.size > 0 and given.fresh[mask_at]:  # a segment begins with a chunk
                    tiles.state[:] = 0
        if given_rows(found.state):
            transpose(tiles.state, 0, row_d, e, d, found.state[0], head * d * e, e)
