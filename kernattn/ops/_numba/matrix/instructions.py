"""Tile instructions in compiled code: those of the machine where Numba compiles for them, emulated ones elsewhere.

There are eight tiles of 16 rows of 64 bytes, and they are this thread's. `configure` comes first and `release` last in
a loop, with no call of another library in between: any may configure tiles of its own. `unit` is a room for the words
of the configuration, or for the tiles, made by `unit_room` before that.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.memory import aligned
from kernattn.ops._numba.codegen.registers import TILES
from kernattn.ops._numba.matrix.emulation import Emulation
from kernattn.ops._numba.matrix.hardware import Hardware

UNIT = 8 * 256
"""Words of the room of a unit."""


def _place(context, builder, kind, array, at=None):
    """Return the code of a pointer to bytes of an array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(data if at is None else builder.gep(data, [at]), ir.IntType(8).as_pointer())


class Instructions(NamedTuple):
    """Intrinsics; the number of a tile is written out where they are called."""

    configure: object
    release: object
    zero: object
    load: object
    store: object
    dot: object


def instructions(machine):
    """Return the intrinsics that a machine emits, `Hardware` or `Emulation`."""

    def plain(emit):
        @intrinsic
        def instruction(context, unit):
            def codegen(context, builder, signature, args):
                emit(builder, _place(context, builder, unit, args[0]))
                return context.get_dummy_value()

            return types.void(unit), codegen

        return instruction

    def move(emit):
        @intrinsic(prefer_literal=True)
        def instruction(context, unit, tile, array, at, row):
            number, size = tile.literal_value, array.dtype.bitwidth // 8

            def codegen(context, builder, signature, args):
                place = _place(context, builder, array, args[2], args[3])
                stride = builder.mul(args[4], ir.Constant(args[4].type, size))
                emit(builder, _place(context, builder, unit, args[0]), number, place, stride)
                return context.get_dummy_value()

            return types.void(unit, tile, array, types.intp, types.intp), codegen

        return instruction

    @intrinsic(prefer_literal=True)
    def zero(context, unit, tile):
        def codegen(context, builder, signature, args):
            machine.zero(builder, _place(context, builder, unit, args[0]), tile.literal_value)
            return context.get_dummy_value()

        return types.void(unit, tile), codegen

    @intrinsic(prefer_literal=True)
    def dot(context, unit, total, left, right):
        numbers = [tile.literal_value for tile in (total, left, right)]

        def codegen(context, builder, signature, args):
            machine.dot(builder, _place(context, builder, unit, args[0]), *numbers)
            return context.get_dummy_value()

        return types.void(unit, total, left, right), codegen

    return Instructions(
        plain(machine.configure), plain(machine.release), zero, move(machine.load), move(machine.store), dot
    )


configure, release, zero, load_tile, store_tile, dot = instructions(Hardware if TILES else Emulation)


@inner
def unit_room():
    """Return the room of a unit."""
    return aligned(UNIT, np.zeros(0, np.uint32))
