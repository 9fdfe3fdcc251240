"""Writing past the caches, for results that do not fit in them, and reading ahead.

An ordinary store reads its line from memory first. A line that is written whole by a non-temporal store is not read:
half the traffic, and the caches keep what the loops still need.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import LINE

STREAMED = 1 << 22
"""Bytes from which on a result is written past the caches."""


@intrinsic
def until_line(context, target):
    """Return how many elements come before the first whole line of the cache."""
    size = target.dtype.bitwidth // 8

    def codegen(context, builder, signature, args):
        integer = context.get_value_type(types.intp)
        address = builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, integer)
        ahead = builder.and_(builder.neg(address), ir.Constant(integer, LINE - 1))
        return builder.udiv(ahead, ir.Constant(integer, size))

    return types.intp(target), codegen


@intrinsic
def _store_line(context, target, source):
    """Store the first line of `source` where `target` begins, which is where a line begins."""
    size = target.dtype.bitwidth // 8

    def codegen(context, builder, signature, args):
        to, what = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(signature.args, args, strict=True)
        )
        line = ir.VectorType(to.type.pointee, LINE // size).as_pointer()
        load = builder.load(builder.bitcast(what, line))
        load.align = size
        store = builder.store(load, builder.bitcast(to, line))
        store.align = LINE
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(target, source), codegen


@intrinsic
def settle(context):
    """Wait until what was streamed can be seen by other threads."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@inner
def stream(target, source):
    """Copy a window to a window of its size, past the caches; `settle` afterwards."""
    n, line = target.size, LINE // target.itemsize
    head = min(until_line(target), n)
    whole = (n - head) // line * line
    for i in range(head):
        target[i] = source[i]
    for i in range(head, head + whole, line):
        _store_line(window(target, i, line), window(source, i, line))
    for i in range(head + whole, n):
        target[i] = source[i]


def fetch_line(builder, place, level=3):
    """Write the code that asks for a line to be brought into a cache: the first (level 3) or the second (2)."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [builder.bitcast(place, byte), word(0), word(level), word(1)])


def _prefetch(level):
    """Return the intrinsic that asks for the line of array[at] to be brought into a cache."""

    @intrinsic
    def prefetch(context, array, at):
        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            fetch_line(builder, builder.gep(data, [args[1]]), level)
            return context.get_dummy_value()

        return types.void(array, types.intp), codegen

    return prefetch


_to_second, _to_first = _prefetch(2), _prefetch(3)


@inner
def fetch(x, at, count):
    """Ask for the lines of x[at : at + count], which are needed soon; it may lie beyond the end.

    The second-level cache takes them: the first forgets them before their turn.
    """
    for i in range(at, at + count, LINE // x.itemsize):
        _to_second(x, i)


@inner
def fetch_next(x, at, count):
    """Ask for the lines of x[at : at + count], which are needed at once, in the nearest cache; as `fetch`."""
    for i in range(at, at + count, LINE // x.itemsize):
        _to_first(x, i)
