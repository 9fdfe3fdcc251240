"""Products of rows with a matrix of weights, panel by panel, whatever the weights are: float32, or of 16 bits.

A panel of WIDE columns is contiguous, inner index by inner index, and panels follow each other; a bias follows the
last one, in float32. Those of bfloat16 lie two inner indices beside each other, (depth / 2, WIDE, 2): a shift and a
mask make two vectors of one load, and tiles of a matrix unit are of this form. Those of float16 lie as float32 does.

One row widens weights in registers, some lines ahead of its turn. Many rows share what a block of inner indices is
widened to once. A cell is one chain of multiply-adds in the order of the inner index either way: the bits of a row do
not depend on the rows beside it, and are those of float32 weights of the same values.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from kernattn.ops._decode.gated_loops import WIDE
from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.halves import BFLOAT16, FLOAT16, widen, widen_float16
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.codegen.registers import LINE, ROWS, TALL, VECTOR, Block, lanes
from kernattn.ops._numba.tiles.products import FULL, is_tall, product, register_block
from kernattn.ops._numba.tiles.stream import fetch_line

DEPTH = 64
"""Inner indices of a block that many rows share: it fills half of a first-level cache."""

AHEAD = 2048
"""Bytes between what one row reads and what it asks for."""


class Weights(NamedTuple):
    """Weights in the order of their use: one memory, seen as floats and as bits."""

    floats: Any
    bits: Any
    kind: Any  # of the bits of matrices, 0 where these are floats
    block: Any  # room for what many rows share


_line = register_block(1, 4 * WIDE // VECTOR)
_go_on, _go_on_tall, _go_on_alone = (register_block(height, 2, goes_on=True) for height in (ROWS, TALL, 1))


def _halves(builder, pairs, wide):
    """Return the two vectors of float32 whose upper halves are the lower and the upper halves of 32-bit words."""
    shift, mask = (ir.Constant(pairs.type, [value] * pairs.type.count) for value in (16, 0xFFFF0000))
    return builder.bitcast(builder.shl(pairs, shift), wide), builder.bitcast(builder.and_(pairs, mask), wide)


def _line_of(kind):
    """Return the intrinsic that multiplies a row with a panel of 16-bit weights."""
    pairs = kind == BFLOAT16

    @intrinsic
    def line(context, x, x_at, bits, at, y, y_at, depth):
        def codegen(context, builder, signature, args):
            k = Block(context, builder, y.dtype)
            x_data, w_data, y_data = k.pointer(x, args[0]), k.pointer(bits, args[2]), k.pointer(y, args[4])
            x_data, w_data, y_data, depth = k.at(x_data, args[1]), k.at(w_data, args[3]), k.at(y_data, args[5]), args[6]
            count, each = WIDE // k.width, 2 if pairs else 1
            number = ir.VectorType(ir.IntType(16), k.width * each)
            start = builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)

            builder.position_at_end(head)
            step = builder.phi(k.index)
            step.add_incoming(k.number(0), start)
            total = [builder.phi(k.vector) for _ in range(count)]
            for each_total in total:
                each_total.add_incoming(ir.Constant(k.vector, [0.0] * k.width), start)
            builder.cbranch(builder.icmp_signed("<", step, depth), body, done)

            builder.position_at_end(body)
            row = k.at(w_data, builder.mul(step, k.number(WIDE)))
            for i in range(0, WIDE * each, LINE // 2):
                fetch_line(builder, k.at(row, i + AHEAD // 2))
            factors = [k.splat(builder.load(k.at(x_data, step)))]
            if pairs:  # beyond an odd depth lie zeros, and x may not be read
                more = builder.add(step, k.number(1))
                there = builder.icmp_signed("<", more, depth)
                value = builder.load(k.at(x_data, builder.select(there, more, step)))
                factors.append(k.splat(builder.select(there, value, ir.Constant(value.type, 0.0))))
            found = []
            for i in range(count):
                read = builder.load(builder.bitcast(k.at(row, i * k.width * each), number.as_pointer()))
                read.align = 2
                if pairs:
                    words = ir.VectorType(ir.IntType(32), k.width)
                    vectors = _halves(builder, builder.bitcast(read, words), k.vector)
                else:
                    vectors = (widen_float16(builder, read),)
                sum_ = total[i]
                for factor, vector in zip(factors, vectors, strict=True):
                    sum_ = builder.call(k.multiply_add(), [factor, vector, sum_])
                found.append(sum_)
            for phi, sum_ in zip(total, found, strict=True):
                phi.add_incoming(sum_, body)
            step.add_incoming(builder.add(step, k.number(each)), body)
            builder.branch(head)

            builder.position_at_end(done)
            for i in range(count):
                k.store(total[i], k.at(y_data, i * k.width))
            return context.get_dummy_value()

        at_ = types.intp
        return types.void(x, at_, bits, at_, y, at_, at_), codegen

    return line


_line_bfloat16, _line_float16 = _line_of(BFLOAT16), _line_of(FLOAT16)


@intrinsic
def _widen_pairs(context, bits, at, target, to, beside):
    """Write a vector of pairs as two of float32, the second one `beside` numbers behind the first."""

    def codegen(context, builder, signature, args):
        k = Block(context, builder, target.dtype)
        words = ir.VectorType(ir.IntType(32), k.width)
        read = builder.load(builder.bitcast(k.at(k.pointer(bits, args[0]), args[1]), words.as_pointer()))
        read.align = 2
        for i, vector in enumerate(_halves(builder, read, k.vector)):
            k.store(vector, k.at(k.pointer(target, args[2]), args[3], builder.mul(k.number(i), args[4])))
        return context.get_dummy_value()

    return types.void(bits, types.intp, target, types.intp, types.intp), codegen


@inner
def _widen_block(bits, kind, at, depth, block):
    """Write inner indices (depth, WIDE) of a panel as float32."""
    if kind == BFLOAT16:
        for i in range(0, depth, 2):
            for j in range(0, WIDE, lanes(block)):
                _widen_pairs(bits, at + i * WIDE + 2 * j, block, i * WIDE + j, WIDE)
    else:
        widen(bits, kind, at, depth * WIDE, block, 0)


@inner
def _add_block(x, x_at, x_row, rows, block, depth, y, y_at, y_row, goes_on):
    """Add the inner indices of a block to the chains of all rows."""
    for j in range(0, WIDE, 2 * lanes(y)):
        i = 0
        while i < rows:
            left = rows - i
            a, c = x_at + i * x_row, y_at + i * y_row + j
            if is_tall(left):
                _go_on_tall(x, a, x_row, 1, block, j, WIDE, y, c, y_row, depth, goes_on)
                i += TALL
            elif left == 1:
                _go_on_alone(x, a, x_row, 1, block, j, WIDE, y, c, y_row, depth, goes_on)
                i += 1
            else:
                _go_on(x, a, x_row, 1, block, j, WIDE, y, c, y_row, depth, goes_on)
                i += ROWS


@inner
def floats_of(depth, columns, kind):
    """Return how many floats a matrix and its bias take of the memory."""
    wide = pad(columns, WIDE)
    return wide * (depth + 1 if kind == 0 else (depth + 1) // 2 + 1)


@inner
def blocks(rows):
    """Return how many rows a product of `rows` rows may write: whole blocks, unless it is one."""
    return pad(rows, ROWS) if rows > 1 else 1


@inner
def multiply(weights, at, x, x_row, rows, depth, columns, y, y_row):
    """Write y = x W + b; return where the weights after these begin."""
    w, bits, kind = weights.floats, weights.bits, weights.kind
    wide = pad(columns, WIDE)
    for j in range(0, wide, WIDE):
        if kind != 0:
            if rows > 1:
                for begin in range(0, depth, DEPTH):
                    count = min(DEPTH, depth - begin)
                    _widen_block(bits, kind, 2 * at + begin * WIDE, count, weights.block)
                    _add_block(x, begin, x_row, rows, weights.block, count, y, j, y_row, begin > 0)
            elif kind == BFLOAT16:
                _line_bfloat16(x, 0, bits, 2 * at, y, j, depth)
            else:
                _line_float16(x, 0, bits, 2 * at, y, j, depth)
            at += WIDE * ((depth + 1) // 2)
        elif rows == 1:
            _line(x, 0, 0, 1, w, at, WIDE, y, j, 0, depth, False)
            at += WIDE * depth
        else:
            product(x, 0, x_row, 1, w, at, WIDE, y, j, y_row, rows, WIDE, depth, False, FULL)
            at += WIDE * depth
    bias = window(w, at, wide)
    for i in range(rows):
        row = window(y, i * y_row, wide)
        for j in range(wide):
            row[j] += bias[j]
    return at + wide
