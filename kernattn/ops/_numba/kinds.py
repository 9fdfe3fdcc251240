"""The nonlinearities in compiled code: the siblings of the formulas in `kernattn.ops.kinds`."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

from kernattn.ops._numba.compile import inner, inner_exact
from kernattn.ops._numba.elementary import cosine, decayed, sine_cosine, within_reach
from kernattn.ops._numba.memory import window
from kernattn.ops._numba.vectors import where
from kernattn.ops.kinds import KINDS

__all__ = ["ELU1", "angular", "column_logs", "column_values", "elu1", "moderate", "row_logs", "row_values"]

ELU1, RELU, COS, SINCOS = (KINDS[name].number for name in ("elu1", "relu", "cos", "sincos"))


@inner
def angular(kind):
    """Are projections angles?"""
    return kind in (COS, SINCOS)


@inner
def moderate(phi, u):
    """Do projections show at once that no feature is large or small?"""
    if phi.moderate == 0:
        return False
    count, limit = 0, phi.moderate
    for i in range(u.size):
        count += 0 if math.fabs(u[i]) < limit else 1
    return count == 0


@inner
def _far(x, shift):
    """Does any x + shift lie beyond the range reduction?"""
    count = 0
    for i in range(x.size):
        count += 0 if within_reach(x[i] + shift) else 1
    return count > 0


@inner_exact
def _cosines(x, shift, factor):
    """Replace x by factor cos(x + shift); each number alone decides whether it is far."""
    if _far(x, shift):
        for i in range(x.size):
            y = x[i] + shift
            x[i] = factor * (cosine(y) if within_reach(y) else x.dtype.type(math.cos(y)))
    else:
        for i in range(x.size):
            x[i] = factor * cosine(x[i] + shift)


@inner_exact
def _sines_cosines(x, other, factor):
    """Replace x by factor cos(x), and write factor sin(x) to `other`."""
    if _far(x, x.dtype.type(0)):
        for i in range(x.size):
            s, c = sine_cosine(x[i])
            if not within_reach(x[i]):
                s, c = x.dtype.type(math.sin(x[i])), x.dtype.type(math.cos(x[i]))
            other[i] = factor * s
            x[i] = factor * c
    else:
        for i in range(x.size):
            s, c = sine_cosine(x[i])
            other[i] = factor * s
            x[i] = factor * c


@inner_exact
def elu1(x, zero):
    """Return elu(x) + 1 of a number or a vector: e^min(x, 0) + max(x, 0)."""
    return decayed(where(x > zero, zero, x)) + where(x > zero, x, zero)


@inner_exact
def _values(kind, x, other, shift, factor):
    """Apply the nonlinearity of a kind in place, times factor; of a pair, write the second part to `other`."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    if kind == ELU1:
        for i in range(x.size):
            x[i] = factor * elu1(x[i], zero)
    elif kind == RELU:
        for i in range(x.size):
            x[i] = factor * (x[i] if x[i] > zero else zero)
    elif kind == COS:
        _cosines(x, shift, factor)
    elif kind == SINCOS:
        _sines_cosines(x, other, factor)
    elif factor != one:
        for i in range(x.size):
            x[i] = factor * x[i]


@inner
def _negated(tile, at, count, other):
    """Write -x at `other`: the second half of a pair."""
    x, y = window(tile, at, count), window(tile, other, count)
    for i in range(count):
        y[i] = -x[i]


@inner
def row_values(phi, tile, at, begin, count, factor):
    """Turn projections begin to begin + count of one token into values times factor; a pair's second part follows."""
    x, other = window(tile, at, count), window(tile, at + count, count)
    if phi.phase:
        for a in range(count):
            x[a] += phi.offset[begin + a]
    _values(phi.kind, x, other, x.dtype.type(0), factor)


@inner
def row_logs(phi, tile, rows, row, count):
    """Turn projections (C, count) into the logs of their features, offsets apart."""
    if phi.features > phi.frequencies:
        for j in range(rows):
            _negated(tile, j * row, count, j * row + count)


@inner
def column_values(phi, tile, row):
    """Turn projections, features-major (D, C), into values (M, C)."""
    zero, one, count = tile.dtype.type(0), tile.dtype.type(1), phi.frequencies * row
    if phi.phase:
        for a in range(phi.frequencies):
            x = window(tile, a * row, row)
            _values(phi.kind, x, x, phi.offset[a], one)
    else:
        _values(phi.kind, window(tile, 0, count), window(tile, count, count), zero, one)


@inner
def column_logs(phi, tile, row):
    """Turn projections, features-major (D, C), into the logs of features (M, C), offsets apart."""
    count = phi.frequencies * row
    if phi.features > phi.frequencies:
        _negated(tile, 0, count, count)
