"""Rows turned into scaled columns as they are read, 16-bit ones widened on the way: no pass of its own for either."""

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.halves import BFLOAT16, widen_bfloat16, widen_float16
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import Block, lanes
from kernattn.ops._numba.tiles.products import transpose, turned
from kernattn.ops._numba.tiles.rows import wide_rows


def _turner(widen):
    """Return the intrinsic that writes a square block of rows, made by `widen` if there is one, as scaled columns."""

    @intrinsic
    def turn(context, x, at, step, factor, y, y_at, y_row):
        place = types.intp

        def codegen(context, builder, signature, args):
            k = Block(context, builder, y.dtype)
            source, target, scale = k.pointer(x, args[0]), k.pointer(y, args[4]), k.splat(args[3])
            kind = k.vector if widen is None else ir.VectorType(ir.IntType(16), k.width)
            rows = []
            for i in range(k.width):
                start = k.at(source, args[1], builder.mul(k.number(i), args[2]))
                row = builder.load(builder.bitcast(start, kind.as_pointer()))
                row.align = x.dtype.bitwidth // 8
                row = row if widen is None else widen(builder, row)
                row = row if row.type == k.vector else builder.fpext(row, k.vector)  # of float64 there are no bits
                rows.append(builder.fmul(row, scale))
            for i, row in enumerate(turned(k, rows)):
                k.store(row, k.at(target, args[5], builder.mul(k.number(i), args[6])))
            return context.get_dummy_value()

        return types.void(x, place, place, y.dtype, y, place, place), codegen

    return turn


def _blocks_by(turn):
    """Return the loop over the blocks of rows."""

    @inner
    def run(x, at, rows, dim, factor, y, row):
        for i in range(0, rows, lanes(y)):
            for j in range(0, dim, lanes(y)):
                turn(x, at + i * dim + j, dim, factor, y, j * row + i, row)

    return run


_floats, _bfloats, _halves = (_blocks_by(_turner(widen)) for widen in (None, widen_bfloat16, widen_float16))


@inner
def turn_rows(x, at, rows, dim, factor, room, y, row):
    """Write y[j, i] = factor x[i, j] for i < rows, j < dim, where x[0, 0] is number `at` of rows (floats, bits, kind).

    What is no whole block goes by way of a room.
    """
    floats, bits, kind = x
    if rows % lanes(y) > 0 or dim % lanes(y) > 0:
        wide, begin = wide_rows(x, at, rows * dim, room)
        transpose(wide, begin, dim, rows, dim, y, 0, row)
        for j in range(dim):
            column = window(y, j * row, rows)
            for i in range(rows):
                column[i] *= factor
    elif kind == 0:
        _floats(floats, at, rows, dim, factor, y, row)
    elif kind == BFLOAT16:
        _bfloats(bits, at, rows, dim, factor, y, row)
    else:
        _halves(bits, at, rows, dim, factor, y, row)
