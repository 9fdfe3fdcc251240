"""The same instructions on any machine: tiles lie in memory, and every sum is taken in the order of the hardware.

TDPBF16PS adds the products of the even and of the odd elements of the inner index apart, each from 0 on by fused
multiply-adds, adds both sums, and adds that to the total. Numbers below the normal ones count as 0, on their way in and
on their way out (Intel's manual of instructions, volume 2, TDPBF16PS; every bit was compared with hardware).
"""

from llvmlite import ir
from numba.core import cgutils

from kernattn.ops._numba.codegen.registers import splat

SIDE = 16
"""Rows of a tile, and words of a row."""

_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_ROW, _NUMBERS = ir.VectorType(_WORD, SIDE), ir.VectorType(ir.FloatType(), SIDE)


def _every(word):
    return ir.Constant(_ROW, [word] * SIDE)


def _flush(builder, x):
    """Return numbers with 0 of their sign for those below the normal ones."""
    bits = builder.bitcast(x, _ROW)
    faint = builder.icmp_unsigned("<", builder.and_(bits, _every(0x7FFFFFFF)), _every(0x00800000))
    return builder.bitcast(builder.select(faint, builder.and_(bits, _every(0x80000000)), bits), _NUMBERS)


def _pair(builder, words):
    """Return the even and the odd bfloat16 of words, as float32."""
    even, odd = builder.shl(words, _every(16)), builder.and_(words, _every(0xFFFF0000))
    return [_flush(builder, builder.bitcast(x, _NUMBERS)) for x in (even, odd)]


def _rows(builder, unit, tile):
    """Return the pointer to the rows of a tile."""
    return builder.gep(builder.bitcast(unit, _ROW.as_pointer()), [_LONG(tile * SIDE)])


def _aligned(instruction):
    instruction.align = 4
    return instruction


def _written_once(write):
    """Let a module have one function of a name, whose body `write` emits, called from every place."""
    name = f"kernattn.emulated.{write.__name__}"

    def call(builder, *given):
        function = builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
            function = ir.Function(builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            body = ir.IRBuilder(function.append_basic_block())
            write(body, *function.args)
            body.ret_void()
        builder.call(function, given)

    return call


@_written_once
def _clear(builder, tile):
    for i in range(SIDE):
        _aligned(builder.store(_every(0), builder.gep(tile, [_LONG(i)])))


@_written_once
def _load(builder, tile, place, stride):
    with cgutils.for_range(builder, _LONG(SIDE)) as rows:
        source = builder.gep(place, [builder.mul(rows.index, stride)])
        words = builder.load(builder.bitcast(source, _ROW.as_pointer()))
        words.align = 1
        _aligned(builder.store(words, builder.gep(tile, [rows.index])))


@_written_once
def _store(builder, tile, place, stride):
    with cgutils.for_range(builder, _LONG(SIDE)) as rows:
        words = _aligned(builder.load(builder.gep(tile, [rows.index])))
        target = builder.gep(place, [builder.mul(rows.index, stride)])
        builder.store(words, builder.bitcast(target, _ROW.as_pointer())).align = 1


@_written_once
def _dot(builder, total, left, right):
    called = ir.FunctionType(_NUMBERS, [_NUMBERS] * 3)
    fma = cgutils.get_or_insert_function(builder.module, called, f"llvm.fma.v{SIDE}f32")
    with cgutils.for_range(builder, _LONG(SIDE)) as rows:
        sums = [ir.Constant(_NUMBERS, [0.0] * SIDE)] * 2
        own = builder.bitcast(builder.gep(left, [rows.index]), _WORD.as_pointer())
        for inner in range(SIDE):
            word = builder.load(builder.gep(own, [_LONG(inner)]))
            theirs = _aligned(builder.load(builder.gep(right, [_LONG(inner)])))
            factors = zip(_pair(builder, splat(builder, word, SIDE)), _pair(builder, theirs), sums, strict=True)
            sums = [_flush(builder, builder.call(fma, three)) for three in factors]
        product = _flush(builder, builder.fadd(*sums))
        place = builder.gep(total, [rows.index])
        before = _flush(builder, builder.bitcast(_aligned(builder.load(place)), _NUMBERS))
        after = builder.bitcast(_flush(builder, builder.fadd(before, product)), _ROW)
        _aligned(builder.store(after, place))


class Emulation:
    """Each method emits what one instruction does. `unit` points to 8 KiB, where the tiles lie."""

    @staticmethod
    def configure(builder, unit):
        """There is nothing to configure."""

    @staticmethod
    def release(builder, unit):
        """Nor to give back."""

    @staticmethod
    def zero(builder, unit, tile):
        """Clear a tile."""
        _clear(builder, _rows(builder, unit, tile))

    @staticmethod
    def load(builder, unit, tile, place, stride):
        """Load rows that begin so many bytes apart."""
        _load(builder, _rows(builder, unit, tile), place, stride)

    @staticmethod
    def store(builder, unit, tile, place, stride):
        """Store rows so many bytes apart."""
        _store(builder, _rows(builder, unit, tile), place, stride)

    @staticmethod
    def dot(builder, unit, total, left, right):
        """Add a product, as TDPBF16PS does."""
        _dot(builder, *(_rows(builder, unit, tile) for tile in (total, left, right)))
