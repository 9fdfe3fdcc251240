"""The state from the start of a chunk of tokens to its end.

A decay near 1 is rounded at every chunk, and the same decay always to the same side: those errors add up. A walk along
the whole sequence leaves such a decay out of the state, as a log that it lacks, until it is e^NEAR. What is written
near the end of floats lets it lack nothing: there, e^-NEAR times as much is no float.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.tiles.products import FULL, fading_product, product

NEAR = -0.5
"""The least log that a state may lack: what is written there is at most e^.5 times as large."""


@inner
def size_of_row(x, at, count):
    """Return the sum of absolute values of a row, as float64."""
    row = window(x, at, count)
    total = row.dtype.type(0)
    for c in range(row.size):
        total += abs(row[c])
    return float(total)


@inner
def size_of_state(d, e, state, room):
    """Return a bound of every number of a state."""
    total = 0.0
    for a in range(d):
        total += size_of_row(state, a * room.row_e, e)
    return total


@inner
def size_of_written(keys, row, written, row_w, rows, d, e):
    """Return a bound of what a chunk's tokens add to any number of a state."""
    total = 0.0
    for j in range(rows):
        total += size_of_row(keys, j * row, d) * size_of_row(written, j * row_w, e)
    return total


@inner
def least_lack(size, like):
    """Return the least log that a state may lack whose numbers are below a size; 1 for none, which NaN has too."""
    return NEAR if size < np.finfo(like.dtype).max / 2 else 1.0


@phase
def carry(rows, d, e, channels, before, state, room):
    """Write the state at the end of the chunk, which may lie where it began: decayed, and with what was written."""
    row, row_e, size = room.row_d, room.row_e, room.size
    if channels == 1:
        for j in range(rows):
            x, y, factor = (
                window(room.written, j * row_e, e),
                window(room.left, j * row_e, e),
                room.between[j * size + rows - 1],
            )
            for c in range(e):
                y[c] = x[c] * factor
        fading_product(
            room.keys, 0, 1, row, room.left, 0, row_e, before, 0, room.since[rows - 1], state, 0, row_e, d, e, rows
        )  # fmt: skip
        return
    since = window(room.since, (rows - 1) * d, d)
    for a in range(d):
        x, y = window(before, a * row_e, e), window(state, a * row_e, e)
        for c in range(e):
            y[c] = x[c] * since[a] if since[a] != 0 else since[a]
    last = (rows - 1) * size * row
    product(room.faded, last, 1, row, room.written, 0, row_e, state, 0, row_e, d, e, rows, True, FULL)


@phase
def carry_late(keys, row, written, row_w, rows, d, e, least, lacks, state, room):
    """Do what `carry` does in place, where all channels have one decay; add its log to what the state lacks, (1,)."""
    row_e, size, raised, factor = room.row_e, room.size, state.dtype.type(1), room.since[rows - 1]
    for i in range(rows):
        lacks[0] += room.logs[i]
    if lacks[0] >= least:
        factor, raised = raised, state.dtype.type(math.exp(-lacks[0]))
    else:
        lacks[0] = 0
    for j in range(rows):
        x, y = window(written, j * row_w, e), window(room.left, j * row_e, e)
        share = raised * room.between[j * size + rows - 1]
        for c in range(e):
            y[c] = x[c] * share
    fading_product(
        keys, 0, 1, row, room.left, 0, row_e, state, 0, factor, state, 0, row_e, d, e, rows
    )  # fmt: skip


@phase
def carry_channels_late(written, row_w, rows, d, e, least, lacks, state, room, levels):
    """Do the same where channels have decays of their own, and lack logs of their own, (d,)."""
    row, row_e, last = room.row_d, room.row_e, levels.count * room.size * room.row_d
    since, raised = window(room.since, 0, d), window(room.factors, 0, d)
    for i in range(rows):
        y = window(room.logs, i * d, d)
        for c in range(d):
            lacks[c] += y[c]
    lacking = False
    for a in range(d):
        if lacks[a] >= least:
            raised[a], lacking = state.dtype.type(1) / since[a], True
            continue
        raised[a], lacks[a] = 1, 0
        x = window(state, a * row_e, e)
        for c in range(e):
            x[c] = x[c] * since[a] if since[a] != 0 else since[a]
    if lacking:
        for j in range(rows):
            x = window(levels.keys, last + j * row, d)
            for c in range(d):
                x[c] *= raised[c]
    product(levels.keys, last, 1, row, written, 0, row_w, state, 0, row_e, d, e, rows, True, FULL)
