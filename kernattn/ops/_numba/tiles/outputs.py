"""The output of a row, and its normaliser."""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.elementary import log_of
from kernattn.ops._numba.codegen.halves import BFLOAT16, narrow, store_bfloat16, store_float16
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load


@inner_exact
def write(num, row, rows, e, den, out, at):
    """Write num / den, 0 where den is 0, and at most the largest float where num is finite."""
    zero = num.dtype.type(0)
    largest = num.dtype.type(np.finfo(num.dtype).max)
    for i in range(rows):
        source, target, d = window(num, i * row, e), window(out, at + i * e, e), den[i]
        if d >= 1:  # nothing overflows
            for c in range(e):
                target[c] = source[c] / d
            continue
        for c in range(e):
            y = zero if d == zero else source[c] / d
            if abs(y) > largest and abs(source[c]) <= largest:
                y = math.copysign(largest, y)
            target[c] = y


def _quotients(put):
    """Return the loop that writes the quotients of a row, of whole vectors, as bits."""

    @inner_exact
    def run(num, at, e, den, bits, to):
        for c in range(0, e, lanes(num)):
            put(load(num, at + c) / den, bits, to + c)

    return run


_bfloat16_quotients, _float16_quotients = _quotients(store_bfloat16), _quotients(store_float16)


@inner
def write_rows(num, row, rows, e, den, room, out, at):
    """Write as `write` does to rows (floats, bits, kind); what may overflow goes to 16 bits by way of a room."""
    floats, bits, kind = out
    if kind == 0:
        write(num, row, rows, e, den, floats, at)
        return
    for i in range(rows):
        d, to = den[i], at + i * e
        if not d >= 1 or e % lanes(num) > 0:
            write(window(num, i * row, e), e, 1, e, window(den, i, 1), room, 0)
            narrow(room, 0, e, bits, kind, to)
        elif kind == BFLOAT16:
            _bfloat16_quotients(num, i * row, e, d, bits, to)
        else:
            _float16_quotients(num, i * row, e, d, bits, to)


@inner_exact
def normalisers(phi, den, unit, units, own, rows, given, given_at, peaks, z, at):
    """Write den 2^(unit + units) e^own times the given log scales as z e^peak: the same whatever the unit.

    Without log scales the peak is the log of a power of two.
    """
    zero, amplitude = den.dtype.type(0), den.dtype.type(1) if phi.per_feature else phi.amplitude
    for i in range(rows):
        rest, octave = math.frexp(den[i])
        peak = zero
        if den[i] != zero:
            peak = log_of(unit + units[i] + den.dtype.type(octave)) + own[i]
            if given.size > 0:
                peak += given[given_at + i]
        peaks[at + i] = peak
        z[at + i] = rest * amplitude
