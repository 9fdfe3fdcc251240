"""Cotangents of the delta rule, and of decays of channels: chunks from the last to the first, each computed again.

States at the starts of groups of chunks are kept; a group's own are made again, and lie in cache. What a delta rule
subtracts is a reading as well: of keys by keys, with the cotangent -beta dx in place of that of an output.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.memory import aligned, copy, unset, whole, window
from kernattn.ops._numba.tiles.products import LATER, product
from kernattn.ops._numba.tiles.rows import as_read, given_rows
from kernattn.ops.gated.carry_loops import carry
from kernattn.ops.gated.loops import (
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    STATE,
    Room,
    as_loops_see,
    load_rows,
    load_state,
    open_chunk,
    room_for,
    score,
)
from kernattn.ops.gated_vjp.chunk_loops import (
    back_for,
    exchange,
    pull_end,
    pull_reading,
    pull_state,
    pull_substitution,
)
from kernattn.ops.gated_vjp.groups_loops import cut, groups_of
from kernattn.ops.gated_vjp.heads_loops import begin_heads, end_heads, pull_keys, pull_queries, pull_start
from kernattn.ops.gated_vjp.rows_loops import load_cotangents, write_rows, write_tokens


class Found(NamedTuple):
    """Where cotangents are written: of queries a head of out, of all else a head of the state. All are rows."""

    q: Any
    k: Any
    v: Any
    logs: Any
    beta: Any
    state: Any


@inner
def _size_of_opened(room):
    """Return how many numbers a chunk has whose opening is kept, see `_open_room`."""
    size = room.size
    return size * (room.row_d + 2 * room.row_e + 2 * size + 3)


@inner
def _open_room(tiles, at, room):
    """Return the room with tiles of its own for what `open_chunk` writes, where all channels have one decay."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    written, num = at + size * row_d, at + size * (row_d + row_e)
    between = num + size * row_e
    reads, logs = between + size * size, between + 2 * size * size
    since, strength = logs + size, logs + 2 * size
    return Room(
        window(tiles, at, size * row_d), whole(room.queries), whole(room.turned), whole(room.faded),
        whole(room.factors), window(tiles, between, size * size), window(tiles, reads, size * size), whole(room.scores),
        window(tiles, logs, size), window(tiles, since, size), whole(room.total), whole(room.lack),
        window(tiles, strength, size),
        window(tiles, written, size * row_e), window(tiles, num, size * row_e), whole(room.left), size, row_d, row_e,
    )  # fmt: skip


@inner
def _walk(given, own, begins, first, count, to_end, sizes, states, stride, tiles, shared):
    """Open chunks one after the other, in rooms of their own where there are tiles for them, and carry the state.

    That of chunk i is read at states[i stride], and that after it written one stride on; after the last, `to_end` asks.
    """
    _, d, e, channels, _ = sizes
    area, opened = shared.row_d * shared.row_e, _size_of_opened(shared)
    for i in range(count):
        start, rows = begins[first + i], begins[first + i + 1] - begins[first + i]
        state = window(states, i * stride, area)
        room = shared
        if tiles.size > 0:
            room = _open_room(tiles, i * opened, shared)
        open_chunk(given, own, start, rows, sizes, state, room)
        if to_end or i + 1 < count:
            carry(rows, d, e, channels, state, window(states, (i + 1) * stride, area), room)


@phase
def _pull_readers(given, q, g_out, reads, head, start, rows, sizes, scale, state, queries, room, back, heard, found):
    """Take back what a chunk's queries read, and write their cotangents."""
    n, d, e, channels, _ = sizes
    size, row_d, row_e = room.size, room.row_d, room.row_e
    for reader in range(reads.shape[1]):
        step_q, at_out = reads[head, reader, QUERY_STEP], reads[head, reader, OUT] * n + start
        at_q = reads[head, reader, QUERY] + start * step_q
        load_cotangents(g_out, at_out * e, rows, e, scale, room, back, heard)
        if channels == 1 and reader > 0:
            pull_start(size, rows, reader > 1, rows, d, e, room, back)
        load_rows(q, at_q, step_q, rows, d, heard, 0, given.normalise, queries, row_d)
        score(queries, rows, d, channels, room, room.scores)
        if channels == 1:
            pull_queries(queries, rows, d, e, state, room, back)
        else:
            product(room.scores, 0, size, 1, back.out, 0, row_e, back.written, 0, row_e, rows, e, rows, True, LATER)
            pull_reading(queries, False, rows, d, e, state, room, back)
        write_rows(
            back.rows, row_d, q, at_q, step_q, rows, d, heard, 0, given.normalise, queries, back.passed, found.q,
            at_out * d,
        )  # fmt: skip


@phase
def _pull_tokens(delta, readers, rows, sizes, state, room, back):
    """Take back what a chunk's tokens write, and what keys read where there is a delta rule."""
    _, d, e, channels, _ = sizes
    if delta:
        pull_substitution(rows, e, room, back)
    if channels == 1:
        pull_keys(rows, d, e, state, room, back)
        pull_start(0, room.size + rows, readers > 1, rows, d, e, room, back)
        end_heads(rows, d, room, back)
    elif delta:
        pull_reading(room.keys, True, rows, d, e, state, room, back)
        for i in range(rows):
            x, y = window(back.rows, i * room.row_d, d), window(back.keys, i * room.row_d, d)
            for a in range(d):
                y[a] += x[a]


@compiled
def pull_gates(sizes, given, q, before, g_out, g_after, table, reads, scale, found, low, high):
    """Take states low to high back through all tokens; where all channels have one decay, beta is given."""
    given, q, before, g_out, g_after = as_loops_see(given), as_read(q), whole(before), as_read(g_out), whole(g_after)
    n, d, e, channels, chunk = sizes
    shared = room_for(d, e, channels, chunk, before)
    owned = back_for(shared, channels, before)
    back, queries = owned, window(owned.readers, shared.size * shared.row_d, shared.size * shared.row_d)
    row_d, row_e, size = shared.row_d, shared.row_e, shared.size
    area, begins = row_d * row_e, np.empty(n + 1, np.int64)
    opened = _size_of_opened(shared)
    delta, heard = given.beta.size > 0, np.zeros(size, np.bool_)
    kept, starts, tiles = unset(0, before), unset(0, before), aligned(0, before)
    for head in range(low, high):
        own = table[head]
        chunks = cut(given, own, sizes, begins)
        together, groups = groups_of(chunks, area)
        again = channels > 1  # chunks are opened again: keys that fade from token to token are too many to keep
        if kept.size < groups * area:  # one room for all heads: fresh memory takes longer than what is done in it
            kept = unset(groups * area, before)
        if starts.size < together * area:
            starts = unset(together * area, before)
        if not again and tiles.size < together * opened:
            tiles = aligned(together * opened, before)
        none = window(tiles, 0, 0)
        load_state(before, own[STATE], d, e, row_e, window(kept, 0, area))
        for group in range(groups - 1):
            copy(kept, group * area, area, kept, (group + 1) * area)
            state, first = window(kept, (group + 1) * area, area), group * together
            _walk(given, own, begins, first, together, True, sizes, state, 0, none, shared)
        load_state(g_after, head if g_after.size > 0 else -1, d, e, row_e, back.state)
        for back_group in range(groups):
            group = groups - 1 - back_group
            first = group * together
            count = min(together, chunks - first)
            copy(kept, group * area, area, starts, 0)
            _walk(given, own, begins, first, count, False, sizes, whole(starts), area, whole(tiles), shared)
            for back_chunk in range(count):
                c = count - 1 - back_chunk
                start, state = begins[first + c], window(starts, c * area, area)
                rows = begins[first + c + 1] - start
                room = shared
                if not again:
                    room = _open_room(tiles, c * opened, shared)
                elif back_chunk > 0:  # of the last one the tiles are as they were left
                    _walk(given, own, begins, first + c, 1, False, sizes, state, 0, none, shared)
                if channels == 1:
                    begin_heads(rows, d, e, state, room, back)
                else:
                    pull_end(rows, d, e, room, back)
                    pull_state(rows, d, e, state, room, back)
                _pull_readers(
                    given, q, g_out, reads, head, start, rows, sizes, scale, state, queries, room, back, heard, found
                )
                _pull_tokens(delta, reads.shape[1], rows, sizes, state, room, back)
                mask_at = own[MASK] * n + start
                write_tokens(
                    back.written, row_e, back.keys, row_d, back.logs, given, own, head, start, rows, sizes, room.keys,
                    back.passed, found,
                )  # fmt: skip
                if delta:
                    write_rows(
                        back.strength, 1, q, 0, 0, rows, 1, given.mask, mask_at, False, back.strength, back.passed,
                        found.beta, head * n + start,
                    )  # fmt: skip
                if given.fresh.size > 0 and given.fresh[mask_at]:
                    back.before[:] = 0
                back = exchange(back)
        if given_rows(found.state):
            for a in range(d):
                copy(back.state, a * row_e, e, found.state[0], (head * d + a) * e)
    owned.strength[0] = 0  # a use behind the loop: windows of these tiles own nothing, and Numba frees what is not used
