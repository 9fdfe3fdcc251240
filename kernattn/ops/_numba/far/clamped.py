"""Projections and log scales of huge rows, held: they leave the range of floats before the features do.

A row is judged by itself, so that none is computed in another way because of its neighbours. Nothing here is fast; the
test that finds such rows is.
"""

import math

import numpy as np

from kernattn._sums.limits import DOUBLE, SINGLE
from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.registers import LINE


@inner
def within(x, reach):
    """Is sum_i |x_i| reach below 1, so that no projection of x comes near an end? Not for NaN."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += abs(x[i]) * reach
    return total < x.dtype.type(1)


@inner
def finite(x):
    """Are all numbers of a row finite?"""
    zero = x.dtype.type(0)
    total = zero
    for i in range(x.size):
        total += x[i] * zero
    return total == zero


@inner
def ends(like):
    """Return where the ends of a dtype begin."""
    return SINGLE if like.itemsize == 4 else DOUBLE


@inner
def largest_log(like):
    """Return the largest log that a row may have."""
    return ends(like).held


@inner
def _clip(y, limit, like):
    """Return y, at most the limit."""
    return like.dtype.type(limit if y > limit else -limit if y < -limit else y)


@inner
def _exponent(x):
    """Return e, so that max_i |x_i| 2^-e lies below 1; 0 where that is not finite."""
    largest = 0.0
    for i in range(x.size):
        largest = max(largest, abs(float(x[i])))
    return math.frexp(largest)[1] if largest < np.inf else 0


@inner
def project_far(omega_t, x, begin, limit, u):
    """Write projections begin to begin + u.size of x, or x itself, to u, at most the limit.

    In float64, with a power of two taken off.
    """
    if omega_t.size == 0:
        for a in range(u.size):
            y = x[begin + a]
            u[a] = y if math.isinf(y) else _clip(float(y), limit, x)
        return
    e, width = _exponent(x), 2 * LINE // x.itemsize
    for a in range(u.size):
        total, at = 0.0, (begin + a) // width * x.size * width + (begin + a) % width
        for i in range(x.size):
            total += math.ldexp(float(x[i]), -e) * float(omega_t[at + i * width])
        u[a] = _clip(math.ldexp(total, e), limit, x)


@inner
def far_scale(weights, x, limit):
    """Return sum_i w_i x_i^2, at most the limit."""
    e, total = _exponent(x), 0.0
    for i in range(weights.size):
        y = math.ldexp(float(x[i]), -e)
        total += float(weights[i]) * y * y
    return _clip(math.ldexp(math.ldexp(total, e), e), limit, x)


@inner
def far_form(centre, linear, factor_t, rank, x, limit):
    """Return l.x - |F (x - c)|^2 / 2, both parts at most the limit; factor_t is F transposed, in panels."""
    e, width, along, squares = _exponent(x), 2 * LINE // x.itemsize, 0.0, 0.0
    shrink = math.ldexp(1.0, -e)
    for i in range(linear.size):
        along += float(linear[i]) * (float(x[i]) * shrink)
    for a in range(rank):
        total, at = 0.0, a // width * x.size * width + a % width
        for i in range(x.size):
            total += (float(x[i]) * shrink - float(centre[i]) * shrink) * float(factor_t[at + i * width])
        squares += total * total
    return _clip(math.ldexp(along, e), limit, x) - _clip(math.ldexp(math.ldexp(squares / 2, e), e), limit, x)


@inner
def lower_far(x, reach):
    """Divide a row beyond reach by a power of two, so that all lies below 1, and return its exponent; else 0."""
    if within(x, reach) or not finite(x):
        return 0
    e = _exponent(x)
    for i in range(x.size):
        x[i] = math.ldexp(float(x[i]), -e)
    return e


@inner
def raise_far(u, e, limit):
    """Multiply projections by 2^e, at most the limit."""
    for a in range(u.size):
        u[a] = _clip(math.ldexp(float(u[a]), e), limit, u)


@inner
def clamp_row(phi, x, u, scales, j):
    """Put other projections u of a huge row x in place of those that have overflowed, and its log scale j.

    They are held within a 64th of the largest float. Rows with NaN or infinity stay as they are, and scales where there
    is no room.
    """
    if finite(x):
        limit = largest_log(x)
        if phi.weights.size > 0 and scales.size > 0:
            scales[j] = far_scale(phi.weights, x, limit)
        project_far(phi.omega_t, x, 0, limit, u)
