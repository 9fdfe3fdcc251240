"""Decays within a chunk of tokens: e to sums of logs, from its start and between its tokens."""

import numpy as np

from kernattn.ops._numba.codegen.compile import phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import bits_of, every, load, store, where
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import given_rows, read_row


@phase
def load_decays(logs, at, step, rows, channels, mask, mask_at, fresh, room):
    """Load the logs of decays: 0 where there is no key, -inf where a sequence begins."""
    for i in range(rows):
        begins, there = fresh.size > 0 and fresh[mask_at + i], mask.size == 0 or mask[mask_at + i]
        if given_rows(logs) and there and not begins:
            read_row(logs, at + i * step, channels, room.logs, i * channels)
        else:
            y = window(room.logs, i * channels, channels)
            for c in range(channels):
                y[c] = -np.inf if begins else 0


@phase
def sum_logs(rows, channels, room):
    """Write the decays from the start, of sums of logs and of what the state there lacks."""
    if channels == 1:
        log, since = room.lack[0], window(room.since, 0, rows)
        for i in range(rows):
            log += room.logs[i]
            since[i] = log
        for i in range(rows):
            since[i] = decayed(since[i])
        return
    total = window(room.factors, 0, channels)
    for c in range(channels):
        total[c] = room.lack[c]
    for i in range(rows):
        y, since = window(room.logs, i * channels, channels), window(room.since, i * channels, channels)
        for c in range(channels):
            total[c] += y[c]
            since[c] = decayed(total[c])


@phase
def decay_pairs(rows, room):
    """Write the decays between tokens, where all channels have one: e to sums of the logs between them.

    They are made for all j of an i at once, [i, j], and turned.
    """
    size, sums, none = room.size, room.scores, room.logs.dtype.type(0)
    for j in range(0, size, lanes(sums)):
        since = every(load(sums, j), -np.inf)
        for i in range(j):  # no token of these has come
            store(every(since, 0), sums, i * size + j)
        for i in range(j, size):
            log = room.logs[i] if 0 < i < rows else none
            since = where(bits_of(1 << i, j, sums), none, since + log)
            store(decayed(since), sums, i * size + j)
    transpose(sums, 0, size, size, size, room.between, 0, size)


@phase
def fade_keys(rows, d, room):
    """Write the keys as they fade from token to token, where channels have decays of their own."""
    size, row = room.size, room.row_d
    decay = window(room.factors, 0, d)
    for i in range(rows):
        y = window(room.logs, i * d, d)
        for c in range(d):
            decay[c] = decayed(y[c])
        for j in range(i):
            x, faded = (
                window(room.faded, ((i - 1) * size + j) * row, d),
                window(room.faded, (i * size + j) * row, d),
            )
            for c in range(d):
                faded[c] = x[c] * decay[c]
        copy(room.keys, i * row, d, room.faded, (i * size + i) * row)
