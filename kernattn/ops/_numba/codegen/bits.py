"""Bits of floats, and their rounding: integers of their own width, where Numba's operators widen to 64 bits."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import intrinsic
from kernattn.ops._numba.codegen.registers import splat
from kernattn.ops._numba.codegen.vectors import Vector, element, like


@intrinsic
def bits(context, x):
    """Return the bits of a float as an integer, or the float that an integer's bits say."""
    of: Any = {
        types.float32: types.int32,
        types.float64: types.int64,
        types.int32: types.float32,
        types.int64: types.float64,
    }
    to = like(x, of[element(x)])

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(x), codegen


def _rounding(name):
    """Return the intrinsic that rounds a float to a whole one by an LLVM instruction."""

    @intrinsic
    def rounded(context, x):
        def codegen(context, builder, signature, args):
            kind = args[0].type
            short = f"v{x.count}{kind.element.intrinsic_name}" if isinstance(x, Vector) else kind.intrinsic_name
            called = ir.FunctionType(kind, [kind])
            return builder.call(cgutils.get_or_insert_function(builder.module, called, f"{name}.{short}"), args)

        return x(x), codegen

    return rounded


rint, floor = _rounding("llvm.rint"), _rounding("llvm.floor")


@intrinsic
def scaled_512(context, x, power):
    """Return x 2^floor(power) for vectors of 16 float32, by one instruction of AVX-512."""

    def codegen(context, builder, signature, args):
        kind, every, rounds = args[0].type, ir.IntType(16), ir.IntType(32)
        called = ir.FunctionType(kind, [kind, kind, kind, every, rounds])
        scale = cgutils.get_or_insert_function(builder.module, called, "llvm.x86.avx512.mask.scalef.ps.512")
        return builder.call(scale, [*args, args[0], every(0xFFFF), rounds(4)])

    return x(x, x), codegen


@intrinsic
def ones(context, word):
    """Return how many bits of a word of 64 bits are 1."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def shift_left(context, x, count):
    """Return x << count in the width of x: Numba's own operator widens to 64 bits."""

    def codegen(context, builder, signature, args):
        width = ir.IntType(element(x).bitwidth)
        by = builder.trunc(args[1], width) if args[1].type.width > width.width else args[1]
        return builder.shl(args[0], splat(builder, by, x.count) if isinstance(x, Vector) else by)

    return x(x, types.int64), codegen


def _operation(emit):
    """Return the intrinsic that makes one integer of two of one width."""

    @intrinsic
    def combine(context, x, y):
        def codegen(context, builder, signature, args):
            return emit(builder, *args)

        return x(x, x), codegen

    return combine


add, xor = _operation(ir.IRBuilder.add), _operation(ir.IRBuilder.xor)  # add is modulo the width


@intrinsic
def and_(context, x, mask):
    """Return x & mask in the width of x."""

    def codegen(context, builder, signature, args):
        width = ir.IntType(signature.args[0].bitwidth)
        return builder.and_(args[0], builder.trunc(args[1], width) if args[1].type.width > width.width else args[1])

    return x(x, types.int64), codegen
