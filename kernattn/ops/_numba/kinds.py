"""The nonlinearities in compiled code: the siblings of the formulas in `kernattn._maps.kinds`."""

import math

from kernattn._maps.kinds import KINDS
from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.elementary import cosine, decayed, exponential, sine_cosine, vanishing, within_reach
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store, where

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
def sines_cosines(x, other, factor):
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
def moderate_elu1(x, zero):
    """Return elu(x) + 1 of a number or a vector, e^min(x, 0) + max(x, 0); 0 where it is below the normal numbers."""
    return decayed(where(x > zero, zero, x)) + where(x > zero, x, zero)


@inner_exact
def _elu1(x, zero):
    """Return elu(x) + 1 of a number or a vector, down to the least number: of moderate ones the same digits."""
    return vanishing(where(x > zero, zero, x)) + where(x > zero, x, zero)


@inner_exact
def _relu(x, zero):
    """Return the part above 0; NaN stays."""
    return where(x < zero, zero, x)


@inner_exact
def positive_value(kind, x, zero):
    """Return elu1 or relu of a vector."""
    return _elu1(x, zero) if kind == ELU1 else _relu(x, zero)


@inner_exact
def positive_values(kind, x, y, factor):
    """Write elu1 or relu of x times factor to y, which may be x."""
    zero, width = x.dtype.type(0), lanes(x)
    last = x.size // width * width
    if kind == ELU1:
        for i in range(0, last, width):
            store(_elu1(load(x, i), zero) * factor, y, i)
        for i in range(last, x.size):
            y[i] = _elu1(x[i], zero) * factor
    else:
        for i in range(0, last, width):
            u = load(x, i)
            store(_relu(u, zero) * factor, y, i)
        for i in range(last, x.size):
            y[i] = _relu(x[i], zero) * factor


@inner_exact
def _values(kind, x, other, shift, factor):
    """Apply the nonlinearity of a kind in place, times factor; of a pair, write the second part to `other`."""
    if kind in (ELU1, RELU):
        positive_values(kind, x, x, factor)
    elif kind == COS:
        _cosines(x, shift, factor)
    elif kind == SINCOS:
        sines_cosines(x, other, factor)
    elif factor != x.dtype.type(1):
        for i in range(x.size):
            x[i] = factor * x[i]


@inner
def _negate(tile, at, count, other):
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
            _negate(tile, j * row, count, j * row + count)


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
        _negate(tile, 0, count, count)


@inner
def column_pull(phi, f, weights, left, right, row, totals):
    """Turn cotangents f + left_a right_i (M, C) of features into those of logs, or of values of a kind of angles.

    For elu1 and relu, of projections. totals become their sums over the features, times these for angles.
    """
    zero, one, width = f.dtype.type(0), f.dtype.type(1), lanes(f)
    for i in range(0, row, width):
        share = load(right, i)
        total = none = every(share, zero)
        ones = every(share, one)
        if phi.kind in (ELU1, RELU):
            for a in range(phi.features):
                w = load(weights, a * row + i)
                slope = where(w < one, w, ones) if phi.kind == ELU1 else where(w > zero, ones, none)
                store((load(f, a * row + i) + share * left[a]) * slope, f, a * row + i)
        elif angular(phi.kind):
            for a in range(phi.features):
                y = load(f, a * row + i) + share * left[a]
                total = total + y * load(weights, a * row + i)
                store(y, f, a * row + i)
        else:
            for a in range(phi.features):
                y = (load(f, a * row + i) + share * left[a]) * load(weights, a * row + i)
                total = total + y
                store(y, f, a * row + i)
        store(total, totals, i)


@inner
def column_join(phi, f, weights, angles, row):
    """Turn what `column_pull` left into cotangents of projections (D, C); angles are lost."""
    count, one, quarter = phi.frequencies, f.dtype.type(1), f.dtype.type(math.pi / 2)
    if phi.kind == COS:
        for a in range(count):
            x, sines = window(f, a * row, row), window(angles, a * row, row)
            _cosines(sines, phi.offset[a] - quarter, one)
            for i in range(row):
                x[i] *= -sines[i]
    elif phi.features > count:
        for a in range(count):
            x, y = window(f, a * row, row), window(f, (count + a) * row, row)
            w, v = window(weights, a * row, row), window(weights, (count + a) * row, row)
            if phi.kind == SINCOS:
                for i in range(row):
                    x[i] = y[i] * w[i] - x[i] * v[i]
            else:
                for i in range(row):
                    x[i] -= y[i]


@inner
def _exponentials(x, sign, scale, offset, f, y):
    """Write e^(sign x + scale + offset) f to y, and return its sum."""
    width, total = lanes(x), x.dtype.type(0)
    last = x.size // width * width
    for a in range(0, last, width):
        store(exponential((load(x, a) * sign + scale) + load(offset, a)) * load(f, a), y, a)
    for a in range(last, x.size):
        y[a] = exponential((x[a] * sign + scale) + offset[a]) * f[a]
    for a in range(x.size):
        total += y[a]
    return total


@inner
def _add(x, y):
    for a in range(y.size):
        x[a] += y[a]


@inner
def row_pull(phi, x, other, f, f_other, begin, scale, factor, offset, offset_other):
    """Turn projections x from `begin` on into their cotangents; return that of the row's log scale.

    `other` is lost. Cotangents of offsets are added to what has room for them.
    """
    zero, one, total = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0)
    if phi.per_feature:
        if phi.features > phi.frequencies:
            total += _exponentials(x, -one, scale, window(phi.offset, phi.frequencies + begin, x.size), f_other, other)
        total += _exponentials(x, one, scale, window(phi.offset, begin, x.size), f, x)
        if offset.size > 0:
            _add(offset, x)
        if phi.features > phi.frequencies:
            if offset.size > 0:
                _add(offset_other, other)
            for a in range(x.size):
                x[a] -= other[a]
    elif angular(phi.kind):
        if phi.phase:
            _add(x, window(phi.offset, begin, x.size))
        sines_cosines(x, other, factor)
        if phi.kind == COS:
            for a in range(x.size):
                total += f[a] * x[a]
                x[a] = -f[a] * other[a]
            if offset.size > 0:
                _add(offset, x)
        else:
            for a in range(x.size):
                c, s = x[a], other[a]
                total += f[a] * c + f_other[a] * s
                x[a] = f_other[a] * c - f[a] * s
    elif phi.kind == ELU1:
        for a in range(x.size):
            x[a] = f[a] * factor * decayed(zero if x[a] > zero else x[a])
    else:
        for a in range(x.size):
            x[a] = f[a] * factor if x[a] > zero else zero
    return total
