"""Complex Fourier transforms of a vector of rows at a time, in place, by decimation in frequency.

A tile z holds point j of L rows at 2 L j: L real parts, then L imaginary ones. A pass of radix R replaces R points,
evenly spaced, by their transform times powers of a root of unity, the factors. Radices are 8, and what is left, at
most 16, for the last pass. The first pass leaves eight blocks, which the others finish one by one, in the first cache
if they fit; where few points differ from zero, the results of the first pass, or of the first two, are written without
reading the tile. Frequencies end in digit-reversed places.
"""

from math import cos, pi, sin, sqrt

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.registers import Block, lanes


def complex_block(context, builder, array, value):
    """Return loads and stores of complex points of a tile."""
    k = Block(context, builder, array.dtype)
    data = k.pointer(array, value)

    def load(at):
        return k.load(k.at(data, at)), k.load(k.at(data, at, k.width))

    def store(at, point):
        k.store(point[0], k.at(data, at))
        k.store(point[1], k.at(data, at, k.width))

    return k, load, store


def complex_product(k, x, y):
    """Return the product of two complex vectors."""
    (a, b), (c, d) = x, y
    fma, builder = k.multiply_add(), k.builder
    negated = builder.fneg(builder.fmul(b, d))
    return builder.call(fma, [a, c, negated]), builder.call(fma, [a, d, builder.fmul(b, c)])


def _sum_and_difference(k, x, y, scale):
    """Return x + scale y and x - scale y."""
    if scale == 1:
        add, sub = k.builder.fadd, k.builder.fsub
        return (add(x[0], y[0]), add(x[1], y[1])), (sub(x[0], y[0]), sub(x[1], y[1]))
    fma, plus, minus = k.multiply_add(), _constant(k, scale), _constant(k, -scale)
    return tuple(tuple(k.builder.call(fma, [y[i], sign, x[i]]) for i in (0, 1)) for sign in (plus, minus))


def _small(k, x, scales):
    """Return the transform of 1, 2 or 4 complex vectors times their scales, frequencies in order."""
    if len(x) == 1:
        return x
    if len(x) == 2:
        return _sum_and_difference(k, x[0], x[1], scales[1])
    even, odd = _sum_and_difference(k, x[0], x[2], scales[2]), _sum_and_difference(k, x[1], x[3], 1)
    zero, two = _sum_and_difference(k, even[0], odd[0], scales[1])
    one, three = _sum_and_difference(k, even[1], (odd[1][1], k.builder.fneg(odd[1][0])), scales[1])
    return zero, one, two, three


def _constant(k, number):
    return ir.Constant(k.vector, [number] * k.width)


def _turned_by(k, x, power, order):
    """Return y and a scale, which the sums that follow take for nothing: x exp(-2 pi i power / order) = scale y."""
    builder, eighths = k.builder, 8 * power / order
    if eighths == 0:
        return x, 1
    if eighths == 2:
        return (x[1], builder.fneg(x[0])), 1
    if eighths == 1:
        return (builder.fadd(x[0], x[1]), builder.fsub(x[1], x[0])), sqrt(0.5)
    if eighths == 3:
        return (builder.fsub(x[1], x[0]), builder.fneg(builder.fadd(x[0], x[1]))), sqrt(0.5)
    angle = 2 * pi * power / order
    return complex_product(k, x, (_constant(k, cos(angle)), _constant(k, -sin(angle)))), 1


def _butterfly(radix, turned):
    """Return the intrinsic that transforms points z[at + i stride], i < radix, and turns results by factors or not."""

    @intrinsic
    def step(context, z, at, stride, factors, factors_at):
        index = types.intp

        def codegen(context, builder, signature, args):
            k, load, store = complex_block(context, builder, z, args[0])
            given = k.pointer(factors, args[3])
            places = [builder.add(args[1], builder.mul(k.number(i), args[2])) for i in range(radix)]
            rows = max(1, radix // 4)  # of the points as a matrix: its columns, then its rows are transformed
            columns = radix // rows
            points, ones = {}, [1] * rows
            for j in range(columns):
                column = _small(k, [load(places[i * columns + j]) for i in range(rows)], ones)
                for i in range(rows):
                    points[i, j] = _turned_by(k, column[i], i * j, radix)
            for i in range(rows):
                row, scales = zip(*(points[i, j] for j in range(columns)), strict=True)
                for j, point in enumerate(_small(k, row, scales)):
                    f = i + rows * j
                    if turned and f > 0:
                        pair = [k.at(given, args[4], 2 * (f - 1) + part) for part in (0, 1)]
                        point = complex_product(k, point, [k.splat(builder.load(part)) for part in pair])
                    store(places[f], point)
            return context.get_dummy_value()

        return types.void(z, index, index, factors, index), codegen

    return step


_last_2, _last_4, _last_8, _last_16 = (_butterfly(radix, False) for radix in (2, 4, 8, 16))
_turned_8 = _butterfly(8, True)


@inner
def _pass(z, start, size, factors, at):
    """Take the steps of radix 8 of one block of `size` points, which leaves eight transforms of an eighth each."""
    unit = 2 * lanes(z)
    part = size // 8
    for j in range(part):
        _turned_8(z, (start + j) * unit, part * unit, factors, at + 14 * j)


@inner
def _last(z, start, count, radix, factors):
    """Transform every `radix` neighbours of `count` points."""
    unit = 2 * lanes(z)
    for j in range(start, start + count, radix):
        if radix == 16:
            _last_16(z, j * unit, unit, factors, 0)
        elif radix == 8:
            _last_8(z, j * unit, unit, factors, 0)
        elif radix == 4:
            _last_4(z, j * unit, unit, factors, 0)
        else:
            _last_2(z, j * unit, unit, factors, 0)


@intrinsic
def _sparse_8(context, z, at, stride, columns, rows, factors, low, high):
    """Write z[at + i stride] = sum_t factors[t, i] columns[rows[t]] for i < 8, low <= t < high; columns are real."""
    index = types.intp

    def codegen(context, builder, signature, args):
        k, _, store = complex_block(context, builder, z, args[0])
        column, given, chosen = k.pointer(columns, args[3]), k.pointer(factors, args[5]), k.pointer(rows, args[4])
        start = builder.block
        head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
        builder.branch(head)

        builder.position_at_end(head)
        t = builder.phi(k.index)
        t.add_incoming(args[6], start)
        total = [builder.phi(k.vector) for _ in range(16)]
        for part in total:
            part.add_incoming(ir.Constant(k.vector, [0.0] * k.width), start)
        builder.cbranch(builder.icmp_signed("<", t, args[7]), body, done)

        builder.position_at_end(body)
        row, fma = builder.load(k.at(chosen, t)), k.multiply_add()
        x = k.load(k.at(column, builder.mul(row, k.number(k.width))))
        first = k.at(given, builder.mul(t, k.number(16)))
        for i, part in enumerate(total):
            factor = k.splat(builder.load(k.at(first, i)))
            part.add_incoming(builder.call(fma, [factor, x, part]), body)
        t.add_incoming(builder.add(t, k.number(1)), body)
        builder.branch(head)

        builder.position_at_end(done)
        for i in range(8):
            place = builder.add(args[1], builder.mul(k.number(i), args[2]))
            store(place, (total[2 * i], total[2 * i + 1]))
        return context.get_dummy_value()

    return types.void(z, index, index, columns, rows, factors, index, index), codegen


@inner
def transform(z, points, factors):
    """Transform the tile."""
    if points <= 16:
        _last(z, 0, points, points, factors)
    else:
        _pass(z, 0, points, factors, 0)
        _finish(z, 0, points, points // 8, points, factors)


@inner
def transform_sparse(z, points, sections, columns, rows, shares, starts, factors):
    """Write the transform of entries of real columns, sorted by their point modulo points / sections.

    Entry t is column rows[t] times a number; shares (sections / 8, t, 8, 2) are the real and imaginary parts of what it
    adds to each of 8 or 64 sections, the results of the first pass or the first two; starts is the first entry of each
    point.
    """
    unit = 2 * lanes(z)
    part = points // sections
    for k in range(sections // 8):
        first = 8 * part * k
        for j in range(part):
            _sparse_8(z, (first + j) * unit, part * unit, columns, rows, shares[k], starts[j], starts[j + 1])
        _finish(z, first, 8 * part, part, points, factors)


@inner
def _finish(z, first, count, part, points, factors):
    """Take the passes that are left for `count` points, parts of which are results of the passes before."""
    skipped, size = 0, points
    while size > part:
        size //= 8
        skipped += 14 * size
    for start in range(first, first + count, part):
        at, size = skipped, part
        while size > 16:
            for inside in range(start, start + part, size):
                _pass(z, inside, size, factors, at)
            size //= 8
            at += 14 * size
        _last(z, start, part, size, factors)
