"""Numbers as sums of bfloat16: the nearest one, and the nearest to what is left; two hold 16 bits.

A float16 is exactly two parts. Numbers are finite and far from the ends of floats; integers round them, as
instructions of the machine take small numbers for 0.
"""

import numpy as np
from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.bits import bits
from kernattn.ops._numba.codegen.compile import inner, inner_exact, intrinsic
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes, splat
from kernattn.ops._numba.codegen.vectors import Vector, like, load, store

FAR = 2.0**40
"""Entries of queries and keys beyond which rows are far: no score of others leaves the range of floats."""


def _word(builder, x, value):
    """Return the code of a word, or of a vector of the same word."""
    word = ir.Constant(ir.IntType(32), value)
    return splat(builder, word, x.count) if isinstance(x, Vector) else word


@intrinsic
def nearest(context, x):
    """Return the nearest bfloat16 to a float32, ties to even, as float32."""

    def codegen(context, builder, signature, args):
        def number(value):
            return _word(builder, x, value)

        own = builder.bitcast(args[0], number(0).type)
        odd = builder.and_(builder.lshr(own, number(16)), number(1))
        rounded = builder.and_(builder.add(builder.add(own, number(0x7FFF)), odd), number(0xFFFF0000))
        return builder.bitcast(rounded, args[0].type)

    return x(x), codegen


@intrinsic
def pair(context, even, odd):
    """Return the words of two bfloat16, which came as float32: the even one below, the odd one above."""

    def codegen(context, builder, signature, args):
        sixteen = _word(builder, even, 16)
        low, high = (builder.bitcast(x, sixteen.type) for x in args)
        return builder.or_(builder.lshr(low, sixteen), high)

    return like(even, types.uint32)(even, odd), codegen


@inner_exact
def pack_pairs(x, row, depth, columns, words, size, part, parts):
    """Write rows 2 k and 2 k + 1 of x (depth, columns) as row k of words, and what is left of them to the next part."""
    width = lanes(x)
    for k in range(0, depth, 2):
        for i in range(0, columns, width):
            a, b = load(x, k * row + i), load(x, (k + 1) * row + i)
            for p in range(parts):
                even, odd = nearest(a), nearest(b)
                store(pair(even, odd), words, p * part + k // 2 * size + i)
                a, b = a - even, b - odd


@inner_exact
def pack_row(x, at, count, target, to, part, parts):
    """Write numbers at to at + count as bfloat16 to target[to] and on, and what is left of them to the next part."""
    x, y = window(x, at, count), window(target, to, count)
    for i in range(count):
        y[i] = np.uint32(bits(nearest(x[i]))) >> np.uint32(16)
    if parts > 1:
        y = window(target, to + part, count)
        for i in range(count):
            y[i] = np.uint32(bits(nearest(x[i] - nearest(x[i])))) >> np.uint32(16)


@inner_exact
def round_rows(x, row, rows, columns):
    """Put the nearest bfloat16 in place of each number of rows."""
    for j in range(rows):
        y = window(x, j * row, columns)
        for i in range(columns):
            y[i] = nearest(y[i])


@inner
def is_far(x, low, high):
    """Is any number of a row not finite, beyond `high`, or below `low` and not 0?"""
    zero, beyond = x.dtype.type(0), 0
    for i in range(x.size):
        size = abs(x[i])
        beyond += 1 if not (size <= high) or (size < low and size != zero) else 0
    return beyond > 0
