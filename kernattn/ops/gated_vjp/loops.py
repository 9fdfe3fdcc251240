"""Cotangents of gated linear attention: chunks from the last to the first, each computed again from its start.

States at the starts of groups of chunks are kept; a group's own are made again, and lie in cache. What a delta rule
subtracts is a reading as well: of keys by keys, with the cotangent -beta dx in place of that of an output.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, copy, whole, window
from kernattn.ops._numba.tiles.products import FULL, LOWER, UPPER, product, transpose
from kernattn.ops._numba.tiles.rows import as_read, given_rows, read_row, wide_rows
from kernattn.ops.gated.loops import (
    MASK,
    OUT,
    QUERY,
    QUERY_STEP,
    STATE,
    STEPS,
    K,
    Room,
    carry,
    inverse_norm,
    load_rows,
    load_state,
    open_chunk,
    room_for,
    row_of,
    rows_of_one_chunk,
    score,
    seen,
)

GROUP, HELD = 8, 1 << 20
"""Chunks of a group, whose states lie in cache together; numbers that are held where all chunks can be one group."""


class Back(NamedTuple):
    """Tiles of cotangents of a chunk of `size` tokens."""

    written: Any  # (size, row_e), of what tokens write; in the end, of values
    out: Any  # (size, row_e), of outputs, or of what stands for them
    turned: Any  # (row_e, size), these or what was written, as the second factor
    wide: Any  # (row_d, size), products with a state
    rows: Any  # (size, row_d), of queries
    keys: Any  # (size, row_d)
    passed: Any  # (size, row_d), of keys on their way back from token to token
    pairs: Any  # (size, size), of scores [j, i]
    logs: Any  # (size, channels)
    state: Any  # (row_d, row_e), of the state after the chunk
    before: Any  # (row_d, row_e), of that at its start
    strength: Any  # (size,)


@inner
def _back_for(room, channels, like):
    size, row_d, row_e = room.size, room.row_d, room.row_e
    return Back(
        aligned(size * row_e, like), aligned(size * row_e, like), aligned(row_e * size, like),
        aligned(row_d * size, like), aligned(size * row_d, like), aligned(size * row_d, like),
        aligned(size * row_d, like), aligned(size * size, like), aligned(size * channels, like),
        aligned(row_d * row_e, like), aligned(row_d * row_e, like), aligned(size, like),
    )  # fmt: skip


@inner
def _exchanged(back):
    """Return the tiles for the chunk before, whose end is this one's start."""
    return Back(
        whole(back.written), whole(back.out), whole(back.turned), whole(back.wide), whole(back.rows), whole(back.keys),
        whole(back.passed), whole(back.pairs), whole(back.logs), whole(back.before), whole(back.state),
        whole(back.strength),
    )  # fmt: skip


@phase
def _against(of, rows, d, e, state, room, back):
    """Write rows (size, e) times the transpose of a state into back.rows (size, row_d)."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    transpose(of, 0, row_e, rows, e, back.turned, 0, size)
    product(state, 0, row_e, 1, back.turned, 0, size, back.wide, 0, size, d, rows, e, False, FULL)
    transpose(back.wide, 0, size, d, rows, back.rows, 0, row_d)


@phase
def _pull_end(rows, d, e, channels, room, back):
    """Begin the cotangents of what tokens write, of keys and of logs by what is left at the end of the chunk."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    _against(room.written, rows, d, e, back.state, room, back)
    last = rows - 1
    if channels == 1:
        product(room.keys, 0, row_d, 1, back.state, 0, row_e, back.written, 0, row_e, rows, e, d, False, FULL)
        for j in range(rows):
            left = room.between[j * size + last]
            y = window(back.written, j * row_e, e)
            for c in range(e):
                y[c] *= left
    else:
        product(
            room.faded, last * size * row_d, row_d, 1, back.state, 0, row_e, back.written, 0, row_e,
            rows, e, d, False, FULL,
        )  # fmt: skip
    total = window(room.total, 0, channels)
    for c in range(channels):
        total[c] = 0
    for i in range(rows):
        j = last - i
        x, y, key = window(back.rows, j * row_d, d), window(back.keys, j * row_d, d), window(room.keys, j * row_d, d)
        logs, own = window(room.logs, j * channels, channels), window(back.logs, j * channels, channels)
        if channels == 1:
            left, told = room.between[j * size + last], x.dtype.type(0)
            for c in range(d):
                y[c] = left * x[c]
                told += key[c] * y[c]
            own[0] = told
        else:
            for c in range(d):
                y[c] = decayed(total[c]) * x[c]
                own[c] = key[c] * y[c]
                total[c] += logs[c]
    _after_each(rows, channels, back)


@phase
def _after_each(rows, channels, back):
    """Turn terms of tokens j into sums for each log: over all tokens before it."""
    for i in range(rows):
        s = rows - 1 - i
        own = window(back.logs, s * channels, channels)
        for c in range(channels):
            own[c] = 0
        for j in range(s):
            x = window(back.logs, j * channels, channels)
            for c in range(channels):
                own[c] += x[c]


@phase
def _pull_state(rows, d, e, channels, state, room, back):
    """Begin the cotangent of the state at the start, and add to those of all logs what decays it."""
    row_e = room.row_e
    since = window(room.since, (rows - 1) * channels, channels)
    sums = window(room.total, 0, channels)
    for c in range(channels):
        sums[c] = 0
    for a in range(d):
        x, y, z = window(back.state, a * row_e, e), window(back.before, a * row_e, e), window(state, a * row_e, e)
        channel = 0 if channels == 1 else a
        factor, told = since[channel], x.dtype.type(0)
        for c in range(e):
            y[c] = factor * x[c]
            told += y[c] * z[c]
        sums[channel] += told if factor != 0 else factor
    for i in range(rows):
        own = window(back.logs, i * channels, channels)
        for c in range(channels):
            own[c] += sums[c]


@phase
def _pull_reading(of, scores, strict, rows, d, e, channels, state, room, back):
    """Take back a reading of rows `of`, of cotangents back.out: theirs into back.rows, and add those of all else."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    _against(back.out, rows, d, e, state, room, back)  # its transpose is the second factor of the pairs, too
    product(room.written, 0, row_e, 1, back.turned, 0, size, back.pairs, 0, size, rows, rows, e, False, UPPER)
    for j in range(rows):
        x = window(back.pairs, j * size, rows)
        for i in range(j + 1 if strict else j):
            x[i] = 0
    if channels == 1:
        told = of.dtype.type(0)
        for step in range(rows):
            i = rows - 1 - step
            x, y, factor = window(of, i * row_d, d), window(back.rows, i * row_d, d), room.since[i]
            own = of.dtype.type(0)
            for c in range(d):
                y[c] = y[c] * factor if factor != 0 else factor  # what is left of anything
                own += x[c] * y[c]
            told += own
            back.logs[i] += told
            g = window(back.out, i * row_e, e)
            for c in range(e):
                g[c] *= factor
        product(of, 0, 1, row_d, back.out, 0, row_e, back.before, 0, row_e, d, e, rows, True, FULL)
        for j in range(rows):
            x, y, z = (
                window(back.pairs, j * size, rows),
                window(room.between, j * size, rows),
                window(scores, j * size, rows),
            )
            told = of.dtype.type(0)
            for step in range(rows - 1 - j):
                i = rows - 1 - step
                told += x[i] * z[i]
                back.logs[i] += told
            for i in range(j, rows):
                x[i] *= y[i]
        product(back.pairs, 0, 1, size, room.keys, 0, row_d, back.rows, 0, row_d, rows, d, rows, True, LOWER)
        product(back.pairs, 0, size, 1, of, 0, row_d, back.keys, 0, row_d, rows, d, rows, True, FULL)
        return
    told = window(room.total, 0, d)
    for c in range(d):
        told[c] = 0
    for step in range(rows):
        i = rows - 1 - step
        x, y, since = window(of, i * row_d, d), window(back.rows, i * row_d, d), window(room.since, i * d, d)
        own, factor = window(back.logs, i * d, d), window(room.factors, i * row_d, d)
        for c in range(d):
            y[c] = y[c] * since[c] if since[c] != 0 else since[c]
            told[c] += x[c] * y[c]
            own[c] += told[c]
            factor[c] = x[c] * since[c]
    product(room.factors, 0, 1, row_d, back.out, 0, row_e, back.before, 0, row_e, d, e, rows, True, FULL)
    decay = window(room.factors, 0, d)
    for step in range(rows):
        i = rows - 1 - step
        x, y, logs = window(of, i * row_d, d), window(back.rows, i * row_d, d), window(room.logs, i * d, d)
        own = window(back.logs, i * d, d)
        for c in range(d):
            decay[c] = decayed(logs[c])
        for j in range(i + 1):
            g, faded = back.pairs[j * size + i], window(room.faded, (i * size + j) * row_d, d)
            passed = window(back.passed, j * row_d, d)
            if step == 0:
                for c in range(d):
                    passed[c] = 0
            for c in range(d):
                y[c] += g * faded[c]
            if j == i:
                for c in range(d):
                    passed[c] += g * x[c]
            else:
                before = window(room.faded, ((i - 1) * size + j) * row_d, d)
                for c in range(d):
                    passed[c] = decay[c] * (passed[c] + g * x[c])
                    own[c] += passed[c] * before[c]
    for j in range(rows):
        x, y = window(back.passed, j * row_d, d), window(back.keys, j * row_d, d)
        for c in range(d):
            y[c] += x[c]


@phase
def _pull_substitution(rows, e, room, back):
    """Turn cotangents of what tokens write into those of values, and set back.out to those of what keys read."""
    size, row_e = room.size, room.row_e
    for step in range(rows):
        i = rows - 1 - step
        y, missed, g = (
            window(back.written, i * row_e, e),
            window(room.num, i * row_e, e),
            window(back.out, i * row_e, e),
        )
        for later in range(i + 1, rows):
            x, factor = window(back.out, later * row_e, e), room.reads[i * size + later]
            for c in range(e):
                y[c] += factor * x[c]
        strength, told = room.strength[i], y.dtype.type(0)
        for c in range(e):
            told += y[c] * missed[c]
            y[c] *= strength
            g[c] = -y[c]
        back.strength[i] = told


@phase
def _write_rows(tile, row, x, at, step, rows, d, mask, mask_at, normalise, units, spare, target, to):
    """Write cotangents of rows, 0 where there is no key; where rows were normalised, of what they were.

    Those of 16 bits are made in the tile. What rows x were is read into `spare`.
    """
    floats, bits, kind = target
    for i in range(rows):
        g = window(tile, i * row, d)
        y = g
        if kind == 0:
            y = window(floats, to + i * d, d)
        if mask.size > 0 and not mask[mask_at + i]:
            for c in range(d):
                y[c] = 0
        elif normalise:
            raw, first = wide_rows(x, at + i * step, d, spare)
            unit = window(units, i * row, d)
            factor, along = inverse_norm(window(raw, first, d)), g.dtype.type(0)
            for c in range(d):
                along += unit[c] * g[c]
            for c in range(d):
                y[c] = factor * (g[c] - unit[c] * along)
        elif kind == 0:
            for c in range(d):
                y[c] = g[c]
        if kind != 0:
            narrow(tile, i * row, d, bits, kind, to + i * d)


@phase
def _load_cotangents(g_out, at, rows, e, scale, room, back):
    """Load the cotangents of outputs, times the scale."""
    for i in range(rows):
        y = window(back.out, i * room.row_e, e)
        if given_rows(g_out):
            read_row(g_out, at + i * e, e, back.out, i * room.row_e)
            for c in range(e):
                y[c] *= scale
        else:
            for c in range(e):
                y[c] = 0


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
    """Return how many numbers a chunk has whose opening is kept, see `_opened`."""
    size = room.size
    return size * (room.row_d + 2 * room.row_e + 2 * size + 3)


@inner
def _opened(tiles, at, room):
    """Return the room with tiles of its own for what `open_chunk` writes, where all channels have one decay."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    written, num = at + size * row_d, at + size * (row_d + row_e)
    between = num + size * row_e
    reads, logs = between + size * size, between + 2 * size * size
    since, strength = logs + size, logs + 2 * size
    return Room(
        window(tiles, at, size * row_d), whole(room.queries), whole(room.turned), whole(room.faded),
        whole(room.factors), window(tiles, between, size * size), window(tiles, reads, size * size), whole(room.scores),
        window(tiles, logs, size), window(tiles, since, size), whole(room.total), window(tiles, strength, size),
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
            room = _opened(tiles, i * opened, shared)
        open_chunk(given, own, start, rows, sizes, state, room)
        if to_end or i + 1 < count:
            carry(rows, d, e, channels, state, window(states, (i + 1) * stride, area), room)


@inner
def _cut(given, own, sizes, begins):
    """Write where chunks begin, and n; return how many there are."""
    n, _, _, _, chunk = sizes
    count, start = 0, 0
    while start < n:
        begins[count] = start
        start += rows_of_one_chunk(given, own, start, min(chunk, n - start), sizes)
        count += 1
    begins[count] = n
    return count


@compiled
def pull_gates(sizes, given, q, before, g_out, g_after, table, reads, scale, found, low, high):
    """Take states low to high back through all tokens."""
    given, q, before, g_out, g_after = seen(given), as_read(q), whole(before), as_read(g_out), whole(g_after)
    n, d, e, channels, chunk = sizes
    shared = room_for(d, e, channels, chunk, before)
    owned = _back_for(shared, channels, before)
    back = owned
    row_d, row_e, size = shared.row_d, shared.row_e, shared.size
    area, begins = row_d * row_e, np.empty(n + 1, np.int64)
    opened = _size_of_opened(shared)
    delta, no_mask = given.beta.size > 0, window(given.mask, 0, 0)
    kept, starts, tiles = aligned(0, before), aligned(0, before), aligned(0, before)
    for head in range(low, high):
        own = table[head]
        chunks = _cut(given, own, sizes, begins)
        together = chunks if chunks * area <= HELD else GROUP
        groups = (chunks + together - 1) // together
        again = channels > 1  # chunks are opened again: keys that fade from token to token are too many to keep
        if kept.size < groups * area:  # one room for all heads: fresh memory takes longer than what is done in it
            kept = aligned(groups * area, before)
        if starts.size < together * area:
            starts = aligned(together * area, before)
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
                    room = _opened(tiles, c * opened, shared)
                elif back_chunk > 0:  # of the last one the tiles are as they were left
                    _walk(given, own, begins, first + c, 1, False, sizes, state, 0, none, shared)
                _pull_end(rows, d, e, channels, room, back)
                _pull_state(rows, d, e, channels, state, room, back)
                for reader in range(reads.shape[1]):
                    step_q, at_out = reads[head, reader, QUERY_STEP], reads[head, reader, OUT] * n + start
                    at_q = reads[head, reader, QUERY] + start * step_q
                    load_rows(q, at_q, step_q, rows, d, no_mask, 0, given.normalise, room.queries, row_d)
                    score(room.queries, rows, d, channels, room, room.scores)
                    _load_cotangents(g_out, at_out * e, rows, e, scale, room, back)
                    product(
                        room.scores, 0, size, 1, back.out, 0, row_e, back.written, 0, row_e, rows, e, rows, True, FULL
                    )  # fmt: skip
                    _pull_reading(room.queries, room.scores, False, rows, d, e, channels, state, room, back)
                    _write_rows(
                        back.rows, row_d, q, at_q, step_q, rows, d, no_mask, 0, given.normalise, room.queries,
                        back.passed, found.q, at_out * d,
                    )  # fmt: skip
                mask_at, at = own[MASK] * n + start, head * n + start
                if delta:
                    _pull_substitution(rows, e, room, back)
                _write_rows(
                    back.written, row_e, q, 0, 0, rows, e, given.mask, mask_at, False, room.written, back.passed,
                    found.v, at * e,
                )  # fmt: skip
                if delta:
                    _pull_reading(room.keys, room.reads, True, rows, d, e, channels, state, room, back)
                    for i in range(rows):
                        x, y = window(back.rows, i * row_d, d), window(back.keys, i * row_d, d)
                        for a in range(d):
                            y[a] += x[a]
                    _write_rows(
                        back.strength, 1, q, 0, 0, rows, 1, given.mask, mask_at, False, back.strength, back.passed,
                        found.beta, at,
                    )  # fmt: skip
                at_k, step_k = row_of(own, K, start), own[STEPS + K]
                _write_rows(
                    back.keys, row_d, given.k, at_k, step_k, rows, d, given.mask, mask_at, given.normalise,
                    room.keys, back.passed, found.k, at * d,
                )  # fmt: skip
                if given_rows(found.logs):
                    for i in range(rows):
                        if given.fresh.size > 0 and given.fresh[mask_at + i]:
                            logs = window(back.logs, i * channels, channels)
                            for a in range(channels):
                                logs[a] = 0
                    _write_rows(
                        back.logs, channels, q, 0, 0, rows, channels, given.mask, mask_at, False, back.logs,
                        back.passed, found.logs, at * channels,
                    )  # fmt: skip
                if given.fresh.size > 0 and given.fresh[mask_at]:
                    back.before[:] = 0
                back = _exchanged(back)
        if given_rows(found.state):
            for a in range(d):
                copy(back.state, a * row_e, e, found.state[0], (head * d + a) * e)
    owned.strength[0] = 0  # a use behind the loop: windows of these tiles own nothing, and Numba frees what is not used
