"""Rows that loops read, (floats, bits, kind): floats where they lie, 16-bit ones widened a chunk at a time."""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.halves import widen
from kernattn.ops._numba.codegen.memory import copy, numbers_at, whole, window
from kernattn.ops._numba.tiles.stream import fetch


@inner
def wide_rows(x, at, count, room):
    """Return an array and where in it numbers at to at + count of rows are floats: as given, or widened in a room."""
    floats, bits, kind = x
    if kind == 0:
        return whole(floats), at
    widen(bits, kind, at, count, room, 0)
    return whole(room), 0


@inner
def fetch_rows(x, at, count):
    """Ask for the lines of numbers at to at + count of rows, which are needed soon."""
    floats, bits, kind = x
    if kind == 0:
        fetch(floats, at, count)
    else:
        fetch(bits, at, count)


@inner
def as_read(x):
    """Return rows as windows have them: arrays that are read and arrays that are written have one type."""
    floats, bits, kind = x
    return whole(floats), whole(bits), kind


@inner
def rows_at(address, kind, like):
    """Return rows whose object is at an address, floats of the type of `like` or bits of a kind; none at 0."""
    return numbers_at(address if kind == 0 else 0, like), numbers_at(address if kind != 0 else 0, np.uint16(0)), kind


@inner
def given_rows(x):
    """Are there any rows?"""
    return x[0].size + x[1].size > 0


@inner
def room_of(count, x):
    """Return how large a room `wide_rows` needs."""
    return 0 if x[2] == 0 else count


@inner
def read_row(x, at, width, tile, to):
    """Copy numbers at to at + width of rows as floats to a tile, from `to` on."""
    floats, bits, kind = x
    if kind == 0:
        copy(floats, at, width, tile, to)
    else:
        widen(bits, kind, at, width, tile, to)


@inner
def read_rows(x, at, rows, width, mask, mask_at, tile, row):
    """Copy rows as floats to a tile, masked ones as zeros."""
    if mask.size == 0 and row == width:
        read_row(x, at, rows * width, tile, 0)
        return
    for j in range(rows):
        if mask.size > 0 and not mask[mask_at + j]:
            target = window(tile, j * row, width)
            for i in range(width):
                target[i] = 0
        else:
            read_row(x, at + j * width, width, tile, j * row)


@inner
def wide_chunk(x, at, step, rows, width, room):
    """Return an array and which of its rows is row `at` of x, the first of a chunk in the order of a walk."""
    floats, bits, kind = x
    if kind == 0:
        return whole(floats), at
    first = 0 if step > 0 else rows - 1
    widen(bits, kind, (at - first) * width, rows * width, room, 0)
    return whole(room), first
