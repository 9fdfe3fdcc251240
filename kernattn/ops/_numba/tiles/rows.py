"""Rows that loops read, (floats, bits, kind): floats where they lie, 16-bit ones widened a chunk at a time."""

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.halves import widen
from kernattn.ops._numba.codegen.memory import whole
from kernattn.ops._numba.tiles.stream import fetch


@inner
def wide_rows(floats, bits, kind, at, count, room):
    """Return an array and where in it numbers at to at + count are floats: as given, or widened in a room."""
    if kind == 0:
        return whole(floats), at
    widen(bits, kind, at, count, room, 0)
    return whole(room), 0


@inner
def fetch_rows(floats, bits, kind, at, count):
    """Ask for the lines of numbers at to at + count, which are needed soon."""
    if kind == 0:
        fetch(floats, at, count)
    else:
        fetch(bits, at, count)


@inner
def as_read(rows):
    """Return rows as windows have them: arrays that are read and arrays that are written have one type."""
    floats, bits, kind = rows
    return whole(floats), whole(bits), kind


@inner
def room_of(count, rows):
    """Return how large a room `wide_rows` needs."""
    return 0 if rows[2] == 0 else count
