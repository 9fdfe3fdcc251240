"""Vectors of the machine, and the words of LLVM in which code of theirs is written."""

import platform
import sys

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target

from kernattn.ops._numba.codegen.compile import intrinsic

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")  # that Numba compiles for
CONVERTS = "+f16c" in _FEATURES
"""Does the machine convert vectors of float16?"""
TILES = sys.platform == "linux" and {"+64bit", "+amx-tile", "+amx-bf16"} <= set(_FEATURES)
"""Does Numba compile for a matrix unit, Intel's AMX, whose permission the kernel gives?"""
PAIRS = not TILES and {"+64bit", "+avx512f", "+avx512bf16", "+sse4a"} <= set(_FEATURES)
"""Does it, without tiles, compile for vectors that multiply pairs of bfloat16 at the rate of floats? AMD's do; Intel's,
which lack SSE4a, are slower."""


def _registers() -> tuple[int, int, int]:
    """Return the bytes of a vector that Numba compiles for, and the heights of a low and a tall register block."""
    if "+avx512f" in _FEATURES:
        return 64, 8, 8
    if platform.machine().lower() in ("arm64", "aarch64"):
        return 16, 8, 8
    return (32, 4, 6) if "+avx" in _FEATURES else (16, 4, 4)


VECTOR, ROWS, TALL = _registers()
"""Bytes of a vector; rows that tiles are padded to; rows of the tallest register block."""
LINE = 64
"""Bytes of a cache line: where tiles begin."""


def vector_length(dtype) -> int:
    """Return how many elements fill a vector."""
    return VECTOR // np.dtype(str(dtype)).itemsize


@intrinsic
def lanes(context, array):
    """Return how many elements of the array fill a vector."""
    count = vector_length(array.dtype)

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(types.intp), count)

    return types.intp(array), codegen


def splat(builder, scalar, count):
    """Return the code of a vector of `count` times the same scalar."""
    nothing, lane = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined), ir.IntType(32)
    one = builder.insert_element(nothing, scalar, ir.Constant(lane, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(lane, count), [0] * count))


class Block:
    """What the code of one register block needs: pointers into tiles, vectors and their loads and stores."""

    def __init__(self, context, builder, dtype):
        self.context, self.builder = context, builder
        self.scalar = context.get_data_type(dtype)
        self.width = vector_length(dtype)
        self.vector = ir.VectorType(self.scalar, self.width)
        self.align = np.dtype(str(dtype)).itemsize
        self.index = context.get_value_type(types.intp)

    def number(self, n):
        return ir.Constant(self.index, n)

    def pointer(self, kind, array):
        return self.context.make_array(kind)(self.context, self.builder, array).data

    def at(self, pointer, *offsets):
        for offset in offsets:
            pointer = self.builder.gep(pointer, [self.number(offset) if isinstance(offset, int) else offset])
        return pointer

    def load(self, pointer):
        loaded = self.builder.load(self.builder.bitcast(pointer, self.vector.as_pointer()))
        loaded.align = self.align
        return loaded

    def store(self, value, pointer):
        self.builder.store(value, self.builder.bitcast(pointer, self.vector.as_pointer())).align = self.align

    def splat(self, scalar):
        return splat(self.builder, scalar, self.width)

    def multiply_add(self):
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fmuladd.v{self.width}f{8 * self.align}"
        return cgutils.get_or_insert_function(self.builder.module, kind, name)
