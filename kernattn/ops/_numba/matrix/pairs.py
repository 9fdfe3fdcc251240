"""Products of bfloat16 by vectors: instructions that multiply pairs and add in float32 (AVX512_BF16, VDPBF16PS).

They read what tiles read: a word of the left side, a pair of its row, meets a vector of words of the right one. A block
of 8 rows by two vectors stays in registers over the inner index. Each cell is one chain of sums from 0 on, part by part
in the order of the inner index, to which what was there before is added at the end. Numbers below the normal ones count
as 0, whatever the thread was told, as in tiles.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.registers import Block, splat

HEIGHT, WIDTH = 8, 2
"""Rows, and vectors of columns, of a block."""

BLOCK, AT_ONCE = 32, 8
"""Inner elements of a block of the left side, and of a turn of the innermost loop."""

_WORD = ir.IntType(32)
_WORDS = ir.VectorType(_WORD, 16)


def _dot(builder, total, left, right):
    """Return total + left right, summed over pairs; LLVM of any age takes pairs as words."""
    kind = ir.FunctionType(total.type, [total.type, _WORDS, _WORDS])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [total, left, right])


def _least(builder, a, b):
    """Return the lesser of two counts."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _add_step(k, total, left, left_row, right, right_row):
    """Add the products of AT_ONCE inner elements to totals, which lie in memory that LLVM keeps in registers."""
    builder = k.builder
    rows = [k.at(left, builder.mul(k.number(i), left_row)) for i in range(HEIGHT)]
    for pair in range(AT_ONCE // 2):
        start = k.at(right, builder.mul(k.number(pair), right_row))
        theirs = [builder.load(builder.bitcast(k.at(start, j * k.width), _WORDS.as_pointer())) for j in range(WIDTH)]
        for x in theirs:
            x.align = 4
        for i, row in enumerate(rows):
            word = builder.load(builder.bitcast(k.at(row, 2 * pair), _WORD.as_pointer()))
            word.align = 2
            own = splat(builder, word, k.width)
            for j in range(WIDTH):
                builder.store(_dot(builder, builder.load(total[i, j]), own, theirs[j]), total[i, j])


def _add_parts(k, total, left, right, depth):
    """Add the products of a part of either side, blocks of the left one a step apart."""
    builder, (x, x_row, x_step), (y, y_row) = k.builder, left, right
    blocks = builder.sdiv(builder.add(depth, k.number(BLOCK - 1)), k.number(BLOCK))
    with cgutils.for_range(builder, blocks) as block:
        x = k.at(x, builder.mul(block.index, x_step))
        y = k.at(y, builder.mul(block.index, builder.mul(y_row, k.number(BLOCK // 2))))
        left_over = builder.sub(depth, builder.mul(block.index, k.number(BLOCK)))
        turns = builder.sdiv(_least(builder, left_over, k.number(BLOCK)), k.number(AT_ONCE))
        with cgutils.for_range(builder, turns) as turn:
            own = k.at(x, builder.mul(turn.index, k.number(AT_ONCE)))
            theirs = k.at(y, builder.mul(turn.index, builder.mul(y_row, k.number(AT_ONCE // 2))))
            _add_step(k, total, own, x_row, theirs, y_row)


@intrinsic
def _block(context, a, a_at, a_row, a_step, a_part, b, b_at, b_row, b_part, parts, c, c_at, c_row, depth, accumulate):
    """Compute a block of HEIGHT rows by WIDTH vectors; arguments are those of `multiply_pairs`."""
    at = types.intp
    kinds = (a, at, at, at, at, b, at, at, at, types.UniTuple(at, 3), c, at, at, at, types.boolean)

    def codegen(context, builder, signature, args):
        k = Block(context, builder, c.dtype)
        left, right, target = (k.at(k.pointer(kind, args[i]), args[i + 1]) for kind, i in ((a, 0), (b, 5), (c, 10)))
        of_left, of_right, below = cgutils.unpack_tuple(builder, args[9])
        cells = [(i, j) for i in range(HEIGHT) for j in range(WIDTH)]
        zero = ir.Constant(k.vector, [0.0] * k.width)
        total = {cell: cgutils.alloca_once(builder, k.vector) for cell in cells}
        for place in total.values():
            builder.store(zero, place)
        loop = cgutils.for_range
        with loop(builder, of_left) as p, loop(builder, _least(builder, of_right, builder.sub(below, p.index))) as r:
            x, y = k.at(left, builder.mul(p.index, args[4])), k.at(right, builder.mul(r.index, args[8]))
            _add_parts(k, total, (x, args[2], args[3]), (y, args[7]), args[13])
        places = {(i, j): k.at(target, builder.mul(k.number(i), args[12]), j * k.width) for i, j in cells}
        with builder.if_then(args[14]):
            for cell, place in places.items():
                builder.store(builder.fadd(k.load(place), builder.load(total[cell])), total[cell])
        for cell, place in places.items():
            k.store(builder.load(total[cell]), place)
        return context.get_dummy_value()

    return types.void(*kinds), codegen


@inner
def multiply_pairs(
    unit, a, a_at, a_row, a_step, a_part, b, b_at, b_row, b_part, parts, c, c_at, c_row, m, n, depth, accumulate
):  # fmt: skip
    """Compute what `products.multiply_tiles` does; m and depth are multiples of 8, and `unit` is not used."""
    for j in range(0, n, 32):
        for i in range(0, m, HEIGHT):
            _block(
                a, a_at + i * a_row, a_row, a_step, a_part, b, b_at + j, b_row, b_part, parts,
                c, c_at + i * c_row + j, c_row, depth, accumulate,
            )  # fmt: skip
