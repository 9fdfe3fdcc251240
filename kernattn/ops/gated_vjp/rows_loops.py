"""Rows of cotangents: of outputs, which are read, and of what a chunk has found, which are written."""

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.halves import narrow, widen
from kernattn.ops._numba.codegen.memory import copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import all_of, every, load, store
from kernattn.ops._numba.tiles.rows import given_rows, wide_rows
from kernattn.ops.gated.loops import MASK, STEPS, K, inverse_norm, row_of


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


@phase
def write_tokens(values, row_e, keys, row_d, logs, given, own, head, start, rows, sizes, units, spare, found):
    """Write the cotangents of a chunk's values, keys and logs, of which one where a segment begins decays nothing."""
    n, d, e, channels, _ = sizes
    mask, mask_at, at = given.mask, own[MASK] * n + start, head * n + start
    write_rows(values, row_e, given.v, 0, 0, rows, e, mask, mask_at, False, values, spare, found.v, at * e)
    at_k, step = row_of(own, K, start), own[STEPS + K]
    write_rows(keys, row_d, given.k, at_k, step, rows, d, mask, mask_at, given.normalise, units, spare, found.k, at * d)
    if given_rows(found.logs):
        if given.fresh.size > 0 and given.fresh[mask_at]:  # a chunk begins there
            window(logs, 0, channels)[:] = 0
        write_rows(
            logs, channels, given.v, 0, 0, rows, channels, mask, mask_at, False, logs, spare, found.logs, at * channels
        )


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
