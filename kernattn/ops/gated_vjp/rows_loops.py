"""Rows of cotangents: of outputs, which are read, and of what a chunk has found, which are written."""

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.halves import narrow, widen
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import all_of, every, load, store
from kernattn.ops._numba.tiles.rows import given_rows, wide_rows
from kernattn.ops.gated.loops import inverse_norm


@phase
def write_rows(tile, row, x, at, step, rows, d, mask, mask_at, normalise, units, spare, target, to):
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
            copy(tile, i * row, d, floats, to + i * d)
        if kind != 0:
            narrow(tile, i * row, d, bits, kind, to + i * d)


@inner
def load_cotangent(g_out, at, e, scale, out, to):
    """Load the cotangent of an output, times the scale; return whether it is anything but 0.

    A query of an output without a cotangent may be anything.
    """
    if not given_rows(g_out):
        window(out, to, e)[:] = 0
        return False
    floats, bits, kind = g_out
    if kind == 0:
        return _scaled(floats, at, e, scale, out, to)
    widen(bits, kind, at, e, out, to)
    return _scaled(out, to, e, scale, out, to)


@inner
def _scaled(x, at, count, scale, out, to):
    """Write a row times the scale; return whether it is anything but 0."""
    last = count // lanes(out) * lanes(out)
    heard, silent = False, every(load(out, to), 0) == 0
    for c in range(0, last, lanes(out)):
        y = load(x, at + c)
        silent = silent & (y == 0)
        store(scale * y, out, to + c)
    for c in range(last, count):
        heard |= x[at + c] != 0
        out[to + c] = scale * x[at + c]
    return heard or (last > 0 and not all_of(silent))


@phase
def load_cotangents(g_out, at, rows, e, scale, room, back, heard):
    """Load the cotangents of outputs, and say which are heard; return whether some are not."""
    silent = False
    for i in range(rows):
        heard[i] = load_cotangent(g_out, at + i * e, e, scale, back.out, i * room.row_e)
        silent |= not heard[i]
    return silent
