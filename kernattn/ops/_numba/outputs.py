"""What a row is told: its output, and its normaliser."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import inner_exact
from kernattn.ops._numba.elementary import log_of
from kernattn.ops._numba.memory import window

__all__ = ["log_normalisers", "write"]


@inner_exact
def write(num, row, rows, e, den, out, at):
    """Write num / den, 0 where den is 0, and at most the largest float where num is finite."""
    zero = num.dtype.type(0)
    largest = num.dtype.type(np.finfo(num.dtype).max)
    for i in range(rows):
        source, target, d = window(num, i * row, e), window(out, at + i * e, e), den[i]
        for c in range(e):
            y = zero if d == zero else source[c] / d
            if abs(y) > largest and abs(source[c]) <= largest:
                y = math.copysign(largest, y)
            target[c] = y


@inner_exact
def log_normalisers(den, unit, units, own, rows, given, given_at, logs, signs, at):
    """Write the logarithm of the size of den 2^(unit + units) e^own times the given log scales, and its sign."""
    zero, one, nothing = den.dtype.type(0), den.dtype.type(1), den.dtype.type(-np.inf)
    for i in range(rows):
        d = den[i]
        log = nothing
        if d != zero:
            log = log_of(unit + units[i]) + math.log(abs(d)) + own[i]
            if given.size > 0:
                log += given[given_at + i]
        logs[at + i] = log
        signs[at + i] = one if d > zero else -one if d < zero else d
