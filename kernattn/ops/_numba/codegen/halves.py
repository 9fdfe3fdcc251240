"""16-bit floats as loops read and write them: bits beside a kind, widened and rounded in registers.

A bfloat16 is the upper half of a float32; Numba knows no such type. Where the machine cannot convert a float16, LLVM
would call a function that is not there, and instructions that round to bfloat16 take small numbers for 0: integers do
both. Results are rounded to the nearest, ties to even, and held to the largest number of the format unless infinite.
"""

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact, intrinsic
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import CONVERTS, VECTOR

BFLOAT16, FLOAT16 = 1, 2
"""Kinds of bits; 0 stands for floats of the loop's own dtype."""

_LANES = VECTOR // 4


def _like(x, width):
    """Return the LLVM type of numbers of a width, as many as there are in x."""
    number: Any = {"float": ir.FloatType(), "half": ir.HalfType()}.get(width) or ir.IntType(width)
    return ir.VectorType(number, x.type.count) if isinstance(x.type, ir.VectorType) else number


class _Words:
    """Operators of 32-bit words, with constants."""

    def __init__(self, builder, like):
        self.builder, self.word, self.float = builder, _like(like, 32), _like(like, "float")

    def number(self, value):
        kind = self.word
        return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)

    def real(self, value):
        kind = self.float
        return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)

    def __getattr__(self, name):
        def apply(x, y):
            return getattr(self.builder, name)(x, self.number(y) if isinstance(y, int) else y)

        return apply

    def choose(self, x, compare, y, yes, no):
        return self.builder.select(self.builder.icmp_signed(compare, x, self.number(y)), yes, no)


def widen_bfloat16(builder, bits):
    """Return the float32 of which these are the upper bits."""
    w = _Words(builder, bits)
    return builder.bitcast(w.shl(builder.zext(bits, w.word), 16), w.float)


def widen_float16(builder, bits):
    """Return the float32 of a float16: its exponent moved, or its last bits as a number where it has none."""
    w = _Words(builder, bits)
    if CONVERTS:
        return builder.fpext(builder.bitcast(bits, _like(bits, "half")), w.float)
    wide = builder.zext(bits, w.word)
    size, sign = w.and_(wide, 0x7FFF), w.shl(w.and_(wide, 0x8000), 16)
    moved = w.add(w.shl(size, 13), 112 << 23)
    normal = w.choose(size, ">=", 0x7C00, w.add(moved, 112 << 23), moved)
    small = builder.bitcast(builder.fmul(builder.sitofp(size, w.float), w.real(2.0**-24)), w.word)
    return builder.bitcast(w.or_(w.choose(size, "<", 0x400, small, normal), sign), w.float)


def _narrow_bfloat16(builder, x, over=0x7F7F):
    """Return the bits of the nearest bfloat16, or of `over` beyond the largest."""
    w = _Words(builder, x)
    bits = builder.bitcast(x, w.word)
    size, sign = w.and_(bits, 0x7FFFFFFF), w.and_(w.lshr(bits, 16), 0x8000)
    nearest = w.lshr(w.add(w.add(size, 0x7FFF), w.and_(w.lshr(size, 16), 1)), 16)
    held = w.choose(nearest, "<", over, nearest, w.number(over))
    known = w.choose(size, "<", 0x7F800000, held, w.choose(size, ">", 0x7F800000, w.number(0x7FC0), w.number(0x7F80)))
    return builder.trunc(w.or_(known, sign), _like(x, 16))


def _narrow_float16(builder, x, over=0x7BFF):
    """Return the bits of the nearest float16, or of `over` beyond the largest."""
    w = _Words(builder, x)
    bits = builder.bitcast(x, w.word)
    if CONVERTS:
        if over == 0x7BFF:
            high = builder.select(builder.fcmp_ordered(">", x, w.real(65504)), w.real(65504), x)
            held = builder.select(builder.fcmp_ordered("<", high, w.real(-65504)), w.real(-65504), high)
            infinite = builder.icmp_signed("==", w.and_(bits, 0x7FFFFFFF), w.number(0x7F800000))
            x = builder.select(infinite, x, held)
        return builder.bitcast(builder.fptrunc(x, _like(x, "half")), _like(x, 16))
    size, sign = w.and_(bits, 0x7FFFFFFF), w.and_(w.lshr(bits, 16), 0x8000)
    rounded = w.add(w.add(w.sub(size, 112 << 23), 0xFFF), w.and_(w.lshr(size, 13), 1))
    # below the normal numbers, the last bit of a sum with 1/2 is theirs
    half = builder.fadd(builder.bitcast(size, w.float), w.real(0.5))
    small = w.sub(builder.bitcast(half, w.word), 126 << 23)
    nearest = w.choose(size, "<", 113 << 23, small, w.lshr(rounded, 13))
    held = w.choose(nearest, "<", over, nearest, w.number(over))
    known = w.choose(size, "<", 0x7F800000, held, w.choose(size, ">", 0x7F800000, w.number(0x7E00), w.number(0x7C00)))
    return builder.trunc(w.or_(known, sign), _like(x, 16))


def _usual(limit, quick, convert):
    """Return what converts vectors of sizes below a limit, given as bits, by a quick way, and others as `convert`."""

    def emit(builder, x):
        if not isinstance(x.type, ir.VectorType):
            return convert(builder, x)
        w = _Words(builder, x)
        below = builder.icmp_signed("<", w.and_(builder.bitcast(x, w.word), 0x7FFFFFFF), w.number(limit))
        word = ir.IntType(x.type.count)
        ends = []
        with builder.if_else(builder.icmp_unsigned("==", builder.bitcast(below, word), word(-1))) as ways:
            for way, converts in zip(ways, (quick, convert), strict=True):
                with way:
                    ends.append((converts(builder, x), builder.block))
        narrowed = builder.phi(ends[0][0].type)
        for end in ends:
            narrowed.add_incoming(*end)
        return narrowed

    return emit


def _quick_bfloat16(builder, x):
    """Return the bits of the nearest bfloat16 of numbers that do not round beyond the largest one."""
    w = _Words(builder, x)
    bits = builder.bitcast(x, w.word)
    rounded = w.add(w.add(bits, 0x7FFF), w.and_(w.lshr(bits, 16), 1))
    return builder.trunc(w.lshr(rounded, 16), _like(x, 16))


def _mover(convert, count):
    """Return the intrinsic that converts `count` numbers from source[at] on to target[to] and on."""

    @intrinsic
    def move(context, source, at, target, to):
        def codegen(context, builder, signature, args):
            ends = []
            for kind, array, place in zip(signature.args[::2], args[::2], args[1::2], strict=True):
                number = ir.IntType(16) if kind.dtype == types.uint16 else ir.FloatType()
                data = builder.gep(context.make_array(kind)(context, builder, array).data, [place])
                ends.append(builder.bitcast(data, (ir.VectorType(number, count) if count else number).as_pointer()))
            numbers = builder.load(ends[0])
            numbers.align = 2 if signature.args[0].dtype == types.uint16 else 4
            converted = convert(builder, numbers)
            builder.store(converted, ends[1]).align = 2 if signature.args[2].dtype == types.uint16 else 4
            return context.get_dummy_value()

        return types.void(source, types.intp, target, types.intp), codegen

    return move


def _converter(convert):
    """Return the loop that converts numbers at to at + count of the source, and writes them from `to` on."""
    block, single = _mover(convert, _LANES), _mover(convert, 0)

    @inner_exact
    def run(source, at, count, target, to):
        last = count // _LANES * _LANES
        for i in range(0, last, _LANES):
            block(source, at + i, target, to + i)
        for i in range(last, count):
            single(source, at + i, target, to + i)

    return run


def _storer(convert):
    """Return the intrinsic that writes a vector to bits at target[to] and on."""

    @intrinsic
    def put(context, vector, target, to):
        def codegen(context, builder, signature, args):
            data = builder.gep(context.make_array(target)(context, builder, args[1]).data, [args[2]])
            x = args[0]  # of float64 there are no bits, but such loops are compiled
            single = _like(x, "float")
            converted = convert(builder, x if x.type == single else builder.fptrunc(x, single))
            builder.store(converted, builder.bitcast(data, converted.type.as_pointer())).align = 2
            return context.get_dummy_value()

        return types.void(vector, target, types.intp), codegen

    return put


def _narrow_soon(over):
    """Return what narrows to bfloat16, sooner where no number of a vector is beyond the largest."""
    return _usual(0x7F7F8000, _quick_bfloat16, partial(_narrow_bfloat16, over=over))


_widen_b, _widen_h, _narrow_b, _narrow_h, _round_b, _round_h = map(
    _converter,
    (
        widen_bfloat16, widen_float16, _narrow_soon(0x7F7F), _narrow_float16,
        _narrow_soon(0x7F80), partial(_narrow_float16, over=0x7C00),
    ),
)  # fmt: skip


store_bfloat16, store_float16 = map(_storer, (_narrow_soon(0x7F7F), _narrow_float16))


@inner
def widen(bits, kind, at, count, target, to):
    """Write bits at to at + count as float32 to target, from `to` on."""
    if kind == BFLOAT16:
        _widen_b(bits, at, count, target, to)
    else:
        _widen_h(bits, at, count, target, to)


@inner
def narrow(source, at, count, bits, kind, to):
    """Write float32 numbers at to at + count of the source as 16-bit ones to bits, from `to` on."""
    if kind == BFLOAT16:
        _narrow_b(source, at, count, bits, to)
    else:
        _narrow_h(source, at, count, bits, to)


@inner
def round_off(source, at, count, bits, kind, to):
    """Write numbers as `narrow` does, but infinite where they are beyond the largest of the format."""
    if kind == BFLOAT16:
        _round_b(source, at, count, bits, to)
    else:
        _round_h(source, at, count, bits, to)


@inner_exact
def finite_bits(bits, kind, at, count):
    """Are numbers at to at + count finite?"""
    x, exponent, bad = window(bits, at, count), 0x7F80 if kind == BFLOAT16 else 0x7C00, 0
    for i in range(count):
        bad += 1 if (x[i] & exponent) == exponent else 0
    return bad == 0


@inner_exact
def some_nan_bits(bits, kind, at, count):
    """Is any of the numbers at to at + count none?"""
    x, infinite, bad = window(bits, at, count), 0x7F80 if kind == BFLOAT16 else 0x7C00, 0
    for i in range(count):
        bad += 1 if (x[i] & 0x7FFF) > infinite else 0
    return bad > 0


@compiled
def widen_all(bits, kind, target):
    """Write all bits as float32."""
    widen(bits, kind, 0, bits.size, target, 0)


@compiled
def narrow_all(source, bits, kind, held):
    """Write all numbers as 16-bit ones: held to the largest of the format, or infinite beyond it."""
    if held:
        narrow(source, 0, source.size, bits, kind, 0)
    else:
        round_off(source, 0, source.size, bits, kind, 0)
