"""Scores where each channel of a key has a decay of its own, by levels: no decay is above 1, and none is divided by.

A pair of tokens lies across the middle of just one of the blocks of 2, 4, 8, ... tokens that begin at multiples of
their length. There the row takes the decay from the middle, which it has part of, and the key that to the middle: what
is left are products. From a level to the next, rows and keys take in the decay of the half beside theirs.
"""

from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, copy, window
from kernattn.ops._numba.tiles.dots import WIDE, dots
from kernattn.ops.gated.loops import dot

SUMMED = 4
"""Decays of blocks of so many tokens and more are e to the sum of their logs, those of shorter ones are products."""


class Levels(NamedTuple):
    """Tiles of a chunk, rows of channels."""

    keys: Any  # (levels + 1, size, row): with the decay to the end of their block of 1, 2, 4, ... tokens
    blocks: Any  # (levels, size, row): decays of these blocks
    rows: Any  # (size and some, row): rows with the decay from the beginning of their block
    lack: Any  # (row,): decay that the state at the start lacks
    ones: Any  # (size,)
    count: Any


@inner
def levels_for(channels, room, like):
    """Return these tiles."""
    count = 0
    while channels > 1 and 1 << count < room.size:
        count += 1
    unit = room.size * room.row_d if channels > 1 else 0
    ones = aligned(room.size, like)
    ones[:] = 1
    return Levels(
        aligned((count + 1) * unit, like), aligned(count * unit, like), aligned(unit + WIDE * room.row_d, like),
        aligned(room.row_d, like), ones, count,
    )  # fmt: skip


@phase
def prepare(rows, d, room, levels):
    """Write the decays of blocks, the keys of all levels, of those of the first, and the decay of the whole chunk."""
    size, row = room.size, room.row_d
    wide = size * row
    lack, since, total = window(levels.lack, 0, d), window(room.since, 0, d), window(room.factors, 0, d)
    for c in range(d):
        lack[c] = decayed(room.lack[c])
        total[c] = room.lack[c]
    for i in range(size):
        decay, logs = window(levels.blocks, i * row, d), window(room.logs, i * d, d)
        if i < rows:
            for c in range(d):
                decay[c] = decayed(logs[c])
                total[c] += logs[c]
        else:
            for c in range(d):
                decay[c] = 1
                logs[c] = 0
    for c in range(d):
        since[c] = decayed(total[c])
    for level in range(levels.count):
        half, at, then = 1 << level, level * wide, (level + 1) * wide
        blocks = 0 if level + 1 == levels.count else (size + 2 * half - 1) // (2 * half)
        for b in range(blocks):
            x, y = window(levels.blocks, at + 2 * b * row, d), window(levels.blocks, at + (2 * b + 1) * row, d)
            decay = window(levels.blocks, then + b * row, d)
            if 2 * half < SUMMED:
                for c in range(d):
                    decay[c] = x[c] * y[c]
            else:
                for c in range(d):
                    total[c] = 0
                for i in range(2 * half * b, min(size, 2 * half * (b + 1))):
                    logs = window(room.logs, i * d, d)
                    for c in range(d):
                        total[c] += logs[c]
                for c in range(d):
                    decay[c] = decayed(total[c])
        for j in range(rows):
            block = (j >> level) + 1
            if block % 2 == 0 or block << level >= rows:
                copy(levels.keys, at + j * row, d, levels.keys, then + j * row)
                continue
            x, y, decay = (
                window(levels.keys, at + j * row, d),
                window(levels.keys, then + j * row, d),
                window(levels.blocks, at + block * row, d),
            )
            for c in range(d):
                y[c] = x[c] * decay[c]


@phase
def score_levels(of, of_row, own, rows, d, room, levels, into):
    """Write the decayed scores [j, i] of keys j < i by rows i, of j = i where asked for, and 0 for others.

    In the end, levels.rows are rows with the decays that the state at the start has for them.
    """
    size, row = room.size, room.row_d
    wide = size * row
    for i in range(rows):
        x, y, decay = window(of, i * of_row, d), window(levels.rows, i * row, d), window(levels.blocks, i * row, d)
        for c in range(d):
            y[c] = x[c] * decay[c]
        if i % 2 == 1:
            into[(i - 1) * size + i] = dot(levels.rows, i * row, levels.keys, (i - 1) * row, d)
    for level in range(levels.count):
        half = 1 << level
        if level > 0:
            for begin in range(0, rows - half, 2 * half):
                middle = begin + half
                dots(
                    levels.keys, level * wide + begin * row, row, levels.rows, middle * row, row, d,
                    into, begin * size + middle, size, half, min(half, size - middle), False,
                )  # fmt: skip
        for i in range(half, rows):
            block = i >> level
            if block % 2 == 1:
                y = window(levels.rows, i * row, d)
                decay = window(levels.blocks, level * wide + (block - 1) * row, d)
                for c in range(d):
                    y[c] *= decay[c]
    lack = window(levels.lack, 0, d)
    for i in range(rows):  # last: whole blocks of scores reach into the next row, in a tile of 4 to its diagonal
        x, y = window(into, i * size, i + 1), window(levels.rows, i * row, d)
        for j in range(i):
            x[j] = 0
        told = x.dtype.type(0)
        if own:
            told = dot(of, i * of_row, levels.keys, i * row, d)
        x[i] = told
        for c in range(d):
            y[c] *= lack[c]
