"""Views of tiles without the interpreter's manners: no bounds, no negative indices, no reference counts.

``tile[at + i]`` asks in every turn whether the index is negative, and so keeps LLVM from vectorising the loop.
``window(tile, at, n)[i]`` does not. A window must not outlive its tile.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.compile import inner, intrinsic

__all__ = ["whole", "window"]


@intrinsic
def window(context, array, start, size):
    """Return elements start to start + size of a flat array; of one type, whether that may be written or not."""
    view = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        source = context.make_array(signature.args[0])(context, builder, args[0])
        result = context.make_array(view)(context, builder)
        bytes_each = context.get_abi_sizeof(context.get_value_type(array.dtype))
        width = ir.Constant(context.get_value_type(types.intp), bytes_each)
        result.meminfo = cgutils.get_null_value(result.meminfo.type)
        result.parent = cgutils.get_null_value(result.parent.type)
        result.nitems = args[2]
        result.itemsize = width
        result.data = builder.gep(source.data, [args[1]])
        result.shape = cgutils.pack_array(builder, [args[2]])
        result.strides = cgutils.pack_array(builder, [width])
        return result._getvalue()

    return view(array, types.intp, types.intp), codegen


@inner
def whole(array):
    """Return all of a flat array, as the type that windows have: loops then compile their parts once."""
    return window(array, 0, array.size)
