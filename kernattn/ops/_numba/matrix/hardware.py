"""Tile instructions of Intel's AMX, as LLVM knows them; a machine without them cannot even select their code."""

from llvmlite import ir
from numba.core import cgutils

_BYTE, _LONG = ir.IntType(8), ir.IntType(64)

CONFIGURATION = {0: 1, **{4 + i: 0x400040 for i in range(4)}, 12: 0x10101010, 13: 0x10101010}
"""Words of the configuration: the palette, the bytes of a row of each tile (16 bits each), its rows (8 bits each)."""


def _call(builder, name, *given):
    kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), given)


def _words(builder, unit):
    return builder.bitcast(unit, ir.IntType(32).as_pointer())


class Hardware:
    """Each method emits one instruction. `unit` points to 8 KiB, of which the first line is the configuration."""

    @staticmethod
    def configure(builder, unit):
        """Give this thread eight tiles of 16 rows of 64 bytes."""
        words = _words(builder, unit)
        for i in range(16):
            word = ir.IntType(32)(CONFIGURATION.get(i, 0))
            builder.store(word, builder.gep(words, [_LONG(i)]))
        _call(builder, "ldtilecfg", unit)

    @staticmethod
    def release(builder, unit):
        """Give the tiles back."""
        _call(builder, "tilerelease")

    @staticmethod
    def zero(builder, unit, tile):
        """Clear a tile."""
        _call(builder, "tilezero", _BYTE(tile))

    @staticmethod
    def load(builder, unit, tile, place, stride):
        """Load rows that begin so many bytes apart."""
        _call(builder, "tileloadd64", _BYTE(tile), place, stride)

    @staticmethod
    def store(builder, unit, tile, place, stride):
        """Store rows so many bytes apart."""
        _call(builder, "tilestored64", _BYTE(tile), place, stride)

    @staticmethod
    def dot(builder, unit, total, left, right):
        """Add a product: TDPBF16PS."""
        _call(builder, "tdpbf16ps", _BYTE(total), _BYTE(left), _BYTE(right))
