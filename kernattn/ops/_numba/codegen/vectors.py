"""Vectors of a register as values of compiled code: what a loop carries from row to row stays out of memory.

LLVM vectorises a loop over columns inside one over rows, but then every maximum and sum of a column goes through memory
once a row. With `load`, `store` and the operators here the loop over rows is the inner one. They are those of scalars,
so that one definition of a function serves both.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin, register_model

from kernattn.ops._numba.codegen.compile import intrinsic
from kernattn.ops._numba.codegen.registers import Block, splat, vector_length


class Vector(types.Type):  # type: ignore[misc]
    """The type of a vector of `count` elements."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype} x {count})")


@register_model(Vector)
class _Model(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, models: Any, kind: Vector) -> None:
        scalar = ir.IntType(1) if kind.dtype == types.boolean else models[kind.dtype].get_value_type()
        super().__init__(models, kind, ir.VectorType(scalar, kind.count))


def element(kind):
    """Return the type of a scalar, or of the elements of a vector."""
    return kind.dtype if isinstance(kind, Vector) else kind


def like(kind, dtype):
    """Return the type of as many elements as `kind` has, of a dtype."""
    return Vector(dtype, kind.count) if isinstance(kind, Vector) else dtype


def _wide(*kinds):
    """Return the first type of a vector, None where there is none."""
    return next((kind for kind in kinds if isinstance(kind, Vector)), None)


def _spread(context, builder, wide, kinds, args):
    """Return the code of arguments as vectors: a scalar is every element of its own."""
    return [
        arg if isinstance(kind, Vector) else splat(builder, context.cast(builder, arg, kind, wide.dtype), wide.count)
        for kind, arg in zip(kinds, args, strict=True)
    ]


def _operator(function: Callable[..., Any], emit: Callable[..., Any], result: Any = None) -> None:
    """Let compiled code apply an operator to two vectors, or to a vector and a scalar."""

    @infer_global(function)
    class _Typing(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args, kws):
            wide = _wide(*args)
            return wide and signature(wide if result is None else like(wide, result), *args)

    def lower(context, builder, signature, args):
        return emit(builder, *_spread(context, builder, _wide(*signature.args), signature.args, args))

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *kinds)(lower)


_operator(operator.add, ir.IRBuilder.fadd)
_operator(operator.sub, ir.IRBuilder.fsub)
_operator(operator.mul, ir.IRBuilder.fmul)
_operator(operator.truediv, ir.IRBuilder.fdiv)
_operator(operator.lt, lambda builder, a, b: builder.fcmp_ordered("<", a, b), types.boolean)
_operator(operator.gt, lambda builder, a, b: builder.fcmp_ordered(">", a, b), types.boolean)
_operator(operator.eq, lambda builder, a, b: builder.fcmp_ordered("==", a, b), types.boolean)
_operator(operator.or_, ir.IRBuilder.or_)
_operator(operator.and_, ir.IRBuilder.and_)


@intrinsic
def load(context, array, at):
    """Return the vector that begins at array[at]."""
    kind = Vector(array.dtype, vector_length(array.dtype))

    def codegen(context, builder, signature, args):
        k = Block(context, builder, array.dtype)
        return k.load(k.at(k.pointer(array, args[0]), args[1]))

    return kind(array, types.intp), codegen


@intrinsic
def store(context, vector, array, at):
    """Write a vector to array[at] and on."""

    def codegen(context, builder, signature, args):
        k = Block(context, builder, array.dtype)
        k.store(args[0], k.at(k.pointer(array, args[1]), args[2]))
        return context.get_dummy_value()

    return types.void(vector, array, types.intp), codegen


@intrinsic
def bits_of(context, word, at, array):
    """Return bits of a word from `at` on as a condition for a vector of the array."""
    kind = Vector(types.boolean, vector_length(array.dtype))

    def codegen(context, builder, signature, args):
        bits = ir.IntType(array.dtype.bitwidth)
        moved = builder.trunc(builder.lshr(args[0], args[1]), bits) if bits.width < 64 else builder.lshr(*args[:2])
        lanes = ir.Constant(ir.VectorType(bits, kind.count), [1 << i for i in range(kind.count)])
        set_lanes = builder.and_(splat(builder, moved, kind.count), lanes)
        return builder.icmp_unsigned("!=", set_lanes, ir.Constant(set_lanes.type, None))

    return kind(word, types.int64, array), codegen


@intrinsic
def every(context, x, value):
    """Return a scalar as what x is, a scalar or a vector."""

    def codegen(context, builder, signature, args):
        scalar = context.cast(builder, args[1], value, element(x))
        return splat(builder, scalar, x.count) if isinstance(x, Vector) else scalar

    return x(x, value), codegen


def _holds(compares, word):
    """Return the intrinsic that compares the bits of a condition, one an element, with a word."""

    @intrinsic
    def holds(context, condition):
        def codegen(context, builder, signature, args):
            bits = builder.bitcast(args[0], ir.IntType(condition.count))
            return builder.icmp_unsigned(compares, bits, bits.type(word))

        return types.boolean(condition), codegen

    return holds


some, all_of = _holds("!=", 0), _holds("==", -1)  # does it hold for any element, and for every one?


@intrinsic
def where(context, condition, a, b):
    """Return a where the condition holds, else b, without a branch."""
    wide = _wide(a, b)

    def codegen(context, builder, signature, args):
        if wide is None:
            return builder.select(*args)
        return builder.select(args[0], *_spread(context, builder, wide, signature.args[1:], args[1:]))

    return (wide or a)(condition, a, b), codegen


@intrinsic
def sum_of(context, vector):
    """Return the sum of the elements of a vector, in halves."""

    def codegen(context, builder, signature, args):
        kind, scalar = args[0].type, ir.FloatType() if vector.dtype == types.float32 else ir.DoubleType()
        name = f"llvm.vector.reduce.fadd.v{vector.count}f{vector.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(scalar, [scalar, kind]), name)
        return builder.call(function, [ir.Constant(scalar, 0.0), args[0]], fastmath=("reassoc",))

    return vector.dtype(vector), codegen


@intrinsic
def multiply_add(context, a, b, total):
    """Return total + a b, rounded once where the machine can."""

    def codegen(context, builder, signature, args):
        k = Block(context, builder, total.dtype)
        return builder.call(k.multiply_add(), args)

    return total(total, total, total), codegen
