"""Memory of tiles, and views of them without the interpreter's manners: no bounds, no negative indices, no counts.

``tile[at + i]`` asks in every turn whether the index is negative, and so keeps LLVM from vectorising the loop.
``window(tile, at, n)[i]`` does not. A window must not outlive its tile.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.registers import LINE, ROWS, lanes
from kernattn.ops._numba.codegen.vectors import load, store


def flat_array(context, builder, kind, data, size):
    """Return the code of a flat array of a type at some place in memory, of which it owns nothing."""
    result = context.make_array(kind)(context, builder)
    bytes_each = context.get_abi_sizeof(context.get_value_type(kind.dtype))
    width = ir.Constant(context.get_value_type(types.intp), bytes_each)
    result.meminfo = cgutils.get_null_value(result.meminfo.type)
    result.parent = cgutils.get_null_value(result.parent.type)
    result.nitems, result.itemsize, result.data = size, width, data
    result.shape = cgutils.pack_array(builder, [size])
    result.strides = cgutils.pack_array(builder, [width])
    return result._getvalue()


@intrinsic
def window(context, array, start, size):
    """Return elements start to start + size of a flat array; of one type, whether that may be written or not."""
    view = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        source = context.make_array(array)(context, builder, args[0])
        return flat_array(context, builder, view, builder.gep(source.data, [args[1]]), args[2])

    return view(array, types.intp, types.intp), codegen


@intrinsic
def whole(context, array):
    """Return all of a flat array, as the type that windows have: loops then compile their parts once."""
    view = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        source = context.make_array(array)(context, builder, args[0])
        return flat_array(context, builder, view, source.data, source.nitems)

    return view(array), codegen


@intrinsic
def numbers_at(context, address, like):
    """Return the numbers of a contiguous NumPy array whose object is at an address, of the type of `like`; none at 0.

    An integer is handed over sooner than an array, which a small call takes some ten of. The caller keeps the object
    alive, and knows how many numbers there are: the size is only 1, or 0 where none are. Behind what all objects begin
    with, NumPy's arrays have the address of their numbers.
    """
    view = types.Array(types.unliteral(like), 1, "C")

    def codegen(context, builder, signature, args):
        kind = context.get_data_type(view.dtype).as_pointer()
        word, start = args[0].type, builder.basic_block
        there = builder.icmp_unsigned("!=", args[0], word(0))
        with builder.if_then(there):
            place = builder.inttoptr(builder.add(args[0], word(object.__basicsize__)), kind.as_pointer())
            data, found = builder.load(place), builder.basic_block
        numbers = builder.phi(kind)
        numbers.add_incoming(ir.Constant(kind, None), start)
        numbers.add_incoming(data, found)
        return flat_array(context, builder, view, numbers, builder.zext(there, word))

    return view(types.intp, like), codegen


@inner
def pad(size, unit):
    """Return the multiple of unit that is not below size."""
    return (size + unit - 1) // unit * unit


@inner
def aligned(size, like):
    """Return a flat array of zeros that begins at a cache line."""
    unit = LINE // like.itemsize
    memory = np.zeros(size + unit, like.dtype)
    skip = (LINE - memory.ctypes.data % LINE) % LINE // like.itemsize
    return memory[skip : skip + size]


@inner
def unset(size, like):
    """Return a flat array of anything that begins at a cache line."""
    unit = LINE // like.itemsize
    memory = np.empty(size + unit, like.dtype)
    skip = (LINE - memory.ctypes.data % LINE) % LINE // like.itemsize
    return memory[skip : skip + size]


@inner
def copy(source, at, count, target, to):
    """Write elements at to at + count of a flat array to another, from `to` on."""
    last = count // lanes(target) * lanes(target)
    for i in range(0, last, lanes(target)):  # LLVM cannot see that they lie apart
        store(load(source, at + i), target, to + i)
    x, y = window(source, at + last, count - last), window(target, to + last, count - last)
    for i in range(count - last):
        y[i] = x[i]


@inner
def tile_rows(count, like):
    """Return how many rows or columns a tile of `count` needs, for whole vectors and whole blocks."""
    return pad(pad(count, lanes(like)), ROWS)


@inner
def odd_row(count, like):
    """Return the length of a row of an odd number of cache lines: the rows of a tile fall into all sets of a cache."""
    line = LINE // like.itemsize
    return (pad(tile_rows(count, like), line) // line // 2 * 2 + 1) * line
