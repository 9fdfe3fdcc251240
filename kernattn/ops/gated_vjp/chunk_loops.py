"""A chunk of gated linear attention on its way back: cotangents of its rows, its logs and the state at its start.

Phases here are for channels with decays of their own; those of one decay for all are in `heads_loops`.
"""

from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.codegen.registers import ROWS
from kernattn.ops._numba.tiles.products import FULL, UPPER, product, solve, transpose


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
    readers: Any  # (2 size, row_d), keys and queries, or queries alone behind room for keys
    outs: Any  # (2 size, row_e), cotangents of what they read of the start, decayed
    turned_keys: Any  # (row_d, size)
    of_keys: Any  # (row_d, size)
    of_rows: Any  # (row_d, size)
    turned_pairs: Any  # (size, size), [i, j]
    earlier: Any  # (size,), of pairs of i with all before a token
    left: Any  # (size,), decays to the end of the chunk
    starts: Any  # (size,), of decays from the start to a token
    ends: Any  # (size,), of those from a token to the end


@inner
def back_for(room, channels, like):
    """Return tiles for a chunk as that room has."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    return Back(
        aligned(size * row_e, like), aligned(size * row_e, like), aligned(row_e * size, like),
        aligned(row_d * size, like), aligned(size * row_d, like), aligned(size * row_d, like),
        aligned(size * row_d, like), aligned(size * size, like), aligned(size * channels, like),
        aligned(row_d * row_e, like), aligned(row_d * row_e, like), aligned(size, like),
        aligned(2 * size * row_d, like), aligned(2 * size * row_e, like), aligned(row_d * size, like),
        aligned(row_d * size, like), aligned(row_d * size, like), aligned(size * size, like), aligned(size, like),
        aligned(size, like), aligned(size, like), aligned(size, like),
    )  # fmt: skip


@inner
def exchange(back):
    """Return the tiles for the chunk before, whose end is this one's start."""
    return Back(
        whole(back.written), whole(back.out), whole(back.turned), whole(back.wide), whole(back.rows), whole(back.keys),
        whole(back.passed), whole(back.pairs), whole(back.logs), whole(back.before), whole(back.state),
        whole(back.strength), whole(back.readers), whole(back.outs), whole(back.turned_keys), whole(back.of_keys),
        whole(back.of_rows), whole(back.turned_pairs), whole(back.earlier), whole(back.left), whole(back.starts),
        whole(back.ends),
    )  # fmt: skip


@phase
def _against(of, rows, d, e, state, room, back):
    """Write rows (size, e) times the transpose of a state into back.rows (size, row_d)."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    transpose(of, 0, row_e, rows, e, back.turned, 0, size)
    product(state, 0, row_e, 1, back.turned, 0, size, back.wide, 0, size, d, rows, e, False, FULL)
    transpose(back.wide, 0, size, d, rows, back.rows, 0, row_d)


@phase
def pull_end(rows, d, e, room, back):
    """Begin the cotangents of what tokens write, of keys and of logs by what is left at the end of the chunk."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    _against(room.written, rows, d, e, back.state, room, back)
    last = rows - 1
    product(
        room.faded, last * size * row_d, row_d, 1, back.state, 0, row_e, back.written, 0, row_e,
        rows, e, d, False, FULL,
    )  # fmt: skip
    total = window(room.total, 0, d)
    for c in range(d):
        total[c] = 0
    for i in range(rows):
        j = last - i
        x, y, key = window(back.rows, j * row_d, d), window(back.keys, j * row_d, d), window(room.keys, j * row_d, d)
        logs, own = window(room.logs, j * d, d), window(back.logs, j * d, d)
        for c in range(d):
            y[c] = decayed(total[c]) * x[c]
            own[c] = key[c] * y[c]
            total[c] += logs[c]
    _after_each(rows, d, back)


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
def pull_state(rows, d, e, state, room, back):
    """Add to the cotangents of all logs what decays the state at the start, and begin its own."""
    row_e = room.row_e
    since, sums = window(room.since, (rows - 1) * d, d), window(room.total, 0, d)
    for a in range(d):
        x, y, z = window(back.state, a * row_e, e), window(back.before, a * row_e, e), window(state, a * row_e, e)
        told = x.dtype.type(0)
        for c in range(e):
            y[c] = since[a] * x[c]
            told += y[c] * z[c]
        sums[a] = told if since[a] != 0 else since[a]
    for i in range(rows):
        own = window(back.logs, i * d, d)
        for c in range(d):
            own[c] += sums[c]


@phase
def pull_reading(of, strict, rows, d, e, state, room, back):
    """Take back a reading of rows `of`, of cotangents back.out: theirs into back.rows, and add those of all else."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    _against(back.out, rows, d, e, state, room, back)  # its transpose is the second factor of the pairs, too
    product(room.written, 0, row_e, 1, back.turned, 0, size, back.pairs, 0, size, rows, rows, e, False, UPPER)
    for j in range(rows):
        x = window(back.pairs, j * size, rows)
        for i in range(j + 1 if strict else j):
            x[i] = 0
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
def pull_substitution(rows, e, room, back):
    """Turn cotangents of what tokens write into those of values, and set back.out to those of what keys read."""
    size, row_e, factors = room.size, room.row_e, back.pairs
    for i in range(size):
        x, factor, y = window(room.reads, i * size, size), window(factors, i * size, size), back.written.dtype.type(0)
        for later in range(size):
            factor[later] = x[later] * room.strength[later] if i < later < rows else y
    last = pad(rows, ROWS) - 1
    for i in range(rows * row_e, (last + 1) * row_e):
        back.written[i] = 0
    at = last * (size + 1)
    solve(factors, at, -size, -1, back.written, last * row_e, -row_e, last + 1, e)
    for i in range(rows):
        y, missed, g = (
            window(back.written, i * row_e, e),
            window(room.num, i * row_e, e),
            window(back.out, i * row_e, e),
        )
        strength, told = room.strength[i], y.dtype.type(0)
        for c in range(e):
            told += y[c] * missed[c]
            y[c] *= strength
            g[c] = -y[c]
        back.strength[i] = told
