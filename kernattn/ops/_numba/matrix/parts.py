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
from kernattn.ops._numba.codegen.vectors import Vector, every, like, load, some, store, where

FAR = 2.0**40
"""Entries of queries and keys beyond which rows are far: no score of others leaves the range of floats."""


def _word(builder, x, value):
    """Return the code of a word, or of a vector of the same word."""
    word = ir.Constant(ir.IntType(32), value)
    return splat(builder, word, x.count) if isinstance(x, Vector) else word


@intrinsic
def raised(context, x):
    """Return a float32 whose upper half is the nearest bfloat16, ties away from 0."""

    def codegen(context, builder, signature, args):
        half = _word(builder, x, 0x8000)
        return builder.bitcast(builder.add(builder.bitcast(args[0], half.type), half), args[0].type)

    return x(x), codegen


@intrinsic
def cut(context, x):
    """Return a float32 with zeros in its lower half."""

    def codegen(context, builder, signature, args):
        upper = _word(builder, x, 0xFFFF0000)
        return builder.bitcast(builder.and_(builder.bitcast(args[0], upper.type), upper), args[0].type)

    return x(x), codegen


@inner_exact
def nearest(x):
    """Return the nearest bfloat16 to a float32, ties away from 0, as float32."""
    return cut(raised(x))


def _upper_halves(builder, vector, args, order):
    """Return the code of the upper halves of two vectors, 16 bits each, in an order of (vector, element)."""
    count, lane = 2 * vector.count, ir.IntType(32)
    one, other = (builder.bitcast(x, ir.VectorType(ir.IntType(16), count)) for x in args)
    picks = [which * count + 2 * i + 1 for which, i in order]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(lane, count), picks))


@intrinsic
def pair(context, even, odd):
    """Return the words of the upper halves of two vectors: that of the even one below, that of the odd one above."""

    def codegen(context, builder, signature, args):
        order = [(which, i) for i in range(even.count) for which in (0, 1)]
        halves = _upper_halves(builder, even, args, order)
        return builder.bitcast(halves, ir.VectorType(ir.IntType(32), even.count))

    return like(even, types.uint32)(even, odd), codegen


@intrinsic
def joined(context, first, then):
    """Return the upper halves of two vectors, those of the first one first."""

    def codegen(context, builder, signature, args):
        order = [(which, i) for which in (0, 1) for i in range(first.count)]
        return _upper_halves(builder, first, args, order)

    return Vector(types.uint16, 2 * first.count)(first, then), codegen


@inner_exact
def pack_pairs(x, row, depth, columns, words, size, part, parts):
    """Write rows 2 k and 2 k + 1 of x (depth, columns) as row k of words, and what is left of them to the next part."""
    width = lanes(x)
    for k in range(0, depth, 2):
        for i in range(0, columns, width):
            a, b = load(x, k * row + i), load(x, (k + 1) * row + i)
            for p in range(parts):
                even, odd = raised(a), raised(b)
                store(pair(even, odd), words, p * part + k // 2 * size + i)
                a, b = a - cut(even), b - cut(odd)


@inner_exact
def pack_row(x, at, count, target, to, part, parts):
    """Write numbers at to at + count as bfloat16 to target[to] and on, and what is left of them to the next part."""
    width = lanes(x)
    whole = count // (2 * width) * (2 * width)
    for i in range(0, whole, 2 * width):
        a, b = load(x, at + i), load(x, at + i + width)
        for p in range(parts):
            first, then = raised(a), raised(b)
            store(joined(first, then), target, to + p * part + i)
            a, b = a - cut(first), b - cut(then)
    for i in range(whole, count):
        a = x[at + i]
        for p in range(parts):
            target[to + p * part + i] = np.uint32(bits(raised(a))) >> np.uint32(16)
            a -= nearest(a)


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


@inner_exact
def all_near(x, at, count, low, high):
    """Is each of so many numbers 0, or of a size between `low` and `high`, and not at them? Of rows, most often yes."""
    width, one, zero = lanes(x), x.dtype.type(1), x.dtype.type(0)
    for i in range(count // width * width, count):
        size = abs(x[at + i])
        if not size < high or (size < low and size != zero):
            return False
    if count < width:
        return True
    far = every(load(x, at), zero)
    for i in range(0, count // width * width, width):
        y = load(x, at + i)
        size = where(y < zero, zero - y, y)
        far = where(size < high, where(size < low, where(size == zero, far, one), far), one)
    return not some(far > zero)
