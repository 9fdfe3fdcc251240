"""One token from a call frame of XLA: what its foreign function interface hands over is read and written in place.

A frame is a C structure of 64-bit words, which XLA's header ``xla/ffi/api/c_api.h`` lays out. Nothing of JAX is
imported here, and the interpreter takes no part in a call.
"""

from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernattn.ops._numba.codegen.compile import OPTIONS, inner, intrinsic
from kernattn.ops._numba.codegen.memory import flat_array
from kernattn.ops.step.loops import advance

VERSION = (0, 3)
"""The version (major, minor) of the interface whose layout stands below."""

EXTENSION, STAGE, OPERANDS, RESULTS = 1, 4, 9, 14  # words of a frame; the last two point to lists of buffers
DATA, RANK, DIMS = 3, 4, 5  # of a buffer
KIND, METADATA, ASKS_VERSION = 1, 3, 1  # of an extension, and the kind of the one that asks for the version
MAJOR_MINOR = 3  # of metadata: two numbers of 32 bits
EXECUTE = 3  # the stage in which there are numbers
LOW = 0xFFFFFFFF  # what C's enumerations take of a word

_WORD = ir.IntType(64)


@intrinsic
def _word(context, address, at):
    """Return the word number `at` from an address on."""

    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(builder.inttoptr(args[0], _WORD.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _put(context, address, at, word):
    """Write a word."""

    def codegen(context, builder, signature, args):
        builder.store(args[2], builder.gep(builder.inttoptr(args[0], _WORD.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@inner
def _find_buffer(frame, buffers, i):
    """Return where the numbers of a buffer lie, and how many there are."""
    buffer = _word(_word(frame, buffers), i)
    dims, size = _word(buffer, DIMS), 1
    for axis in range(_word(buffer, RANK)):
        size *= _word(dims, axis)
    return _word(buffer, DATA), size


def _lend(dtype, buffers, readonly=False, words=1):
    """Return the part that makes a flat array of the memory of a buffer, whose dtype has so many of XLA's numbers."""
    kind = types.Array(dtype, 1, "C", readonly=readonly)

    @intrinsic
    def array(context, address, size):
        def codegen(context, builder, signature, args):
            data = builder.inttoptr(args[0], context.get_data_type(dtype).as_pointer())
            return flat_array(context, builder, kind, data, args[1])

        return kind(types.int64, types.int64), codegen

    @inner
    def lend(frame, i):
        address, size = _find_buffer(frame, buffers, i)
        return array(address, size // words)

    return lend


def _at(loop, kinds):
    """Return the intrinsic that calls a compiled loop where it lies: none of it is compiled again."""
    loop.compile(kinds)
    found = loop.overloads[kinds]
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)

    @intrinsic
    def call(context, arguments):
        def codegen(context, builder, signature, args):
            convention = context.call_conv
            function = convention.get_function_type(types.none, kinds).as_pointer()
            given = cgutils.unpack_tuple(builder, args[0])
            function = builder.inttoptr(ir.Constant(_WORD, address), function)
            convention.call_function(builder, function, types.none, kinds, given)
            return context.get_dummy_value()

        return types.void(arguments), codegen

    return call


@cache
def handler(dtype: np.dtype[Any]) -> int:
    """Return the address of the handler of steps whose numbers are of a dtype, compiled for this process.

    Operands are the two arrays of the queries' map, those of the keys', q, k, v, the log scales that are given, the
    mask, the table, s, z and peak; results the output, and s, z and peak after it. Integers of 64 bits cross as two of
    32, which JAX always has.
    """
    number, integer = numba.from_dtype(dtype), types.int64
    whole, table = _lend(integer, OPERANDS, True, 2), _lend(integer, OPERANDS, False, 2)
    constants, mask = _lend(number, OPERANDS, True), _lend(types.boolean, OPERANDS, True)
    read, written = _lend(number, OPERANDS), _lend(number, RESULTS)
    bits, bits_out = _lend(types.uint16, OPERANDS), _lend(types.uint16, RESULTS)  # of which there are none

    fixed, loose = (types.Array(number, 1, "C", readonly=flag) for flag in (True, False))
    phi = types.Tuple((types.Array(integer, 1, "C", readonly=True), fixed))
    rows = types.Tuple((loose, types.Array(types.uint16, 1, "C"), integer))
    tokens, integers = types.Tuple((rows, rows, rows, fixed)), types.Array(integer, 1, "C")
    sums, booleans = types.UniTuple(loose, 3), types.Array(types.boolean, 1, "C", readonly=True)
    call = _at(advance, (phi, phi, tokens, booleans, integers, sums, rows, sums, integers, integer))

    def handle(frame):
        extension = _word(frame, EXTENSION)
        if extension != 0 and _word(extension, KIND) & LOW == ASKS_VERSION:
            _put(_word(extension, METADATA), MAJOR_MINOR, VERSION[0] + (VERSION[1] << 32))
        elif _word(frame, STAGE) & LOW == EXECUTE:
            call(
                (
                    (whole(frame, 0), constants(frame, 1)),
                    (whole(frame, 2), constants(frame, 3)),
                    (
                        (read(frame, 4), bits(frame, 4), types.int64(0)),
                        (read(frame, 5), bits(frame, 5), types.int64(0)),
                        (read(frame, 6), bits(frame, 6), types.int64(0)),
                        constants(frame, 7),
                    ),
                    mask(frame, 8),
                    table(frame, 9),
                    (read(frame, 10), read(frame, 11), read(frame, 12)),
                    (written(frame, 0), bits_out(frame, 0), types.int64(0)),
                    (written(frame, 1), written(frame, 2), written(frame, 3)),
                    table(frame, 9),  # no board: one slab is not shared
                    types.int64(1),
                )
            )
        return types.int64(0)

    compiled = numba.cfunc(types.int64(types.int64), **OPTIONS)(handle)
    _kept.append(compiled)
    return int(compiled.address)


_kept: list[Any] = []
"""Handlers that XLA knows by their address."""
