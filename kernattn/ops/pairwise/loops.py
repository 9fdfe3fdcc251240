"""Kernel matrices in one pass: a block of measures in the first-level cache, a function of them, and out."""

import math

from llvmlite import ir
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.halves import round_off
from kernattn.ops._numba.codegen.memory import aligned, copy, whole, window
from kernattn.ops._numba.codegen.registers import TALL, lanes
from kernattn.ops._numba.codegen.vectors import load, store
from kernattn.ops._numba.tiles.products import register_block, transpose
from kernattn.ops._numba.tiles.rows import as_read
from kernattn.ops._numba.tiles.stream import STREAMED, settle, stream
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, LINEAR, MANHATTAN, MATERN, QUADRATIC, SQUARED


def _square(k, a, b, total):
    """Return total + (a - b)^2."""
    apart = k.builder.fsub(a, b)
    return k.builder.call(k.multiply_add(), [apart, apart, total])


def _absolute(k, a, b, total):
    """Return total + |a - b|."""
    kind = ir.FunctionType(k.vector, [k.vector])
    function = cgutils.get_or_insert_function(k.builder.module, kind, f"llvm.fabs.v{k.width}f{8 * k.align}")
    return k.builder.fadd(total, k.builder.call(function, [k.builder.fsub(a, b)]))


def _least(k, a, b, total):
    """Return total + min(a, b)."""
    least = k.builder.select(k.builder.fcmp_ordered("<", a, b), a, b)
    return k.builder.fadd(total, least)


_dots, _squares = register_block(TALL, 2), register_block(TALL, 2, _square)
_absolutes, _minima = register_block(TALL, 2, _absolute), register_block(TALL, 2, _least)


@inner
def measures(measure, x, y, dim, chain, tile, row, columns):
    """Write the measures of a block of rows x (d, TALL) and panels y of columns (d, 2 lanes) to tile (TALL, row).

    Sums run over `chain` axes, then over those sums: rounding grows with the length of a chain of additions.
    """
    wide = 2 * lanes(tile)
    for j in range(0, columns, wide):
        for low in range(0, dim, chain):
            a, b, depth = low * TALL, j * dim + low * wide, min(chain, dim - low)
            if measure == DOT:
                _dots(x, a, 1, TALL, y, b, wide, tile, j, row, depth, low > 0)
            elif measure == SQUARED:
                _squares(x, a, 1, TALL, y, b, wide, tile, j, row, depth, low > 0)
            elif measure == MANHATTAN:
                _absolutes(x, a, 1, TALL, y, b, wide, tile, j, row, depth, low > 0)
            else:
                _minima(x, a, 1, TALL, y, b, wide, tile, j, row, depth, low > 0)


@inner
def _powers(u, shift, degree, base):
    """Replace u by (u + shift)^degree, by squares."""
    for i in range(u.size):
        base[i] = u[i] = u[i] + shift
    bit = 1
    while 2 * bit <= degree:
        bit *= 2
    while bit > 1:
        bit //= 2
        if degree & bit:
            for i in range(u.size):
                u[i] = u[i] * u[i] * base[i]
        else:
            for i in range(u.size):
                u[i] = u[i] * u[i]


@inner_exact
def _exponentials(u, factor):
    """Replace u, and what lies behind in its last vector, by e^(factor u)."""
    for i in range(0, u.size, lanes(u)):
        store(exponential(load(u, i) * factor), u, i)


@inner_exact
def _materns(u, number, degree):
    """Replace u by p(s) e^-s, s^2 = number u, which rounding may have made a little less than 0."""
    one, a, b = u.dtype.type(1), u.dtype.type(LINEAR[degree]), u.dtype.type(QUADRATIC[degree])
    for i in range(u.size):
        s = math.sqrt(math.fabs(number * u[i]))
        u[i] = (one + s * (a + s * b)) * exponential(-s)


@inner
def apply_form(u, function, number, degree, base):
    """Replace measures u by a function of them; `base` has room for as many."""
    if function == EXPONENTIAL:
        _exponentials(u, number)
    elif function == MATERN:
        _materns(u, number, degree)
    else:
        _powers(u, number, degree, base)


@compiled
def write_pairs(x, y, n, k, dim, who, measure, function, number, degree, out, chain, columns, rows, low, high):
    """Write blocks low to high of rows of f(m(x_i, y_j)) to out (B, n, k), (floats, bits, kind), `columns` at a time.

    who (B, 2): heads of x and y. Blocks have `rows` rows, the last one of a head fewer.
    """
    x, y, (floats, bits, kind) = whole(x), whole(y), as_read(out)
    wide, blocks = 2 * lanes(x), (n + rows - 1) // rows
    panels, some = aligned(columns * dim, x), aligned(TALL * dim, x)
    tile, base = aligned(TALL * columns, x), aligned(columns, x)
    streamed = floats.size * floats.itemsize >= STREAMED
    at = low
    while at < high:
        head, first = at // blocks, at % blocks * rows
        last = min(n, first + (high - at) * rows)
        at += (last - first + rows - 1) // rows
        for begin in range(0, k, columns):
            count = min(columns, k - begin)
            for j in range(0, count, wide):
                source = (who[head, 1] * k + begin + j) * dim
                transpose(y, source, dim, min(wide, count - j), dim, panels, j * dim, wide)
            for i in range(first, last, TALL):
                height = min(TALL, last - i)
                transpose(x, (who[head, 0] * n + i) * dim, dim, height, dim, some, 0, TALL)
                measures(measure, some, panels, dim, chain, tile, columns, count)
                for r in range(height):
                    u = window(tile, r * columns, count)
                    apply_form(u, function, number, degree, base)
                    to = (head * n + i + r) * k + begin
                    if kind != 0:
                        round_off(tile, r * columns, count, bits, kind, to)
                    elif streamed:
                        stream(window(floats, to, count), u)
                    else:
                        copy(u, 0, count, floats, to)
    if streamed:
        settle()
