"""One pass over the sums of a head: the old ones shrink, a token comes in, a query reads the result.

While they are renewed, those of the next head, which lie behind them, are asked for.
"""

from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import LINE, Block, lanes
from kernattn.ops._numba.tiles.stream import fetch_line

WIDE, HALF = 8, 4  # vectors of columns whose totals stay in registers


def _columns(vectors, shrinks, renews):
    """Return the intrinsic that passes over all rows of some columns; the old sums may shrink, and be renewed."""

    @intrinsic
    def block(context, old, new, row, decay, weights, reader, value, total):
        arrays = (old, new, decay, weights, reader, value, total)
        kinds = (old, new, types.intp, decay, weights, reader, value, total)

        def codegen(context, builder, signature, args):
            k = Block(context, builder, total.dtype)
            given = (*args[:2], *args[3:])
            before, after, f, w, q, v, sums = (k.pointer(kind, x) for kind, x in zip(arrays, given, strict=True))
            rows = context.make_array(reader)(context, builder, args[5]).nitems
            places = range(vectors)
            values = [k.load(k.at(v, j * k.width)) for j in places]
            begun = [k.load(k.at(sums, j * k.width)) for j in places]
            add, start = k.multiply_add(), builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)

            builder.position_at_end(head)
            a = builder.phi(k.index)
            a.add_incoming(k.number(0), start)
            totals = [builder.phi(k.vector) for _ in places]
            for sum_, first in zip(totals, begun, strict=True):
                sum_.add_incoming(first, start)
            builder.cbranch(builder.icmp_signed("<", a, rows), body, done)

            builder.position_at_end(body)
            at = builder.mul(a, args[2])
            shrink, weight, looks = (k.splat(builder.load(k.at(x, a))) for x in (f, w, q))
            if renews:
                for j in range(0, vectors * k.width, LINE // k.align):
                    fetch_line(builder, k.at(before, builder.add(at, builder.mul(rows, args[2])), j), 2)
            for j in places:
                x = k.load(k.at(before, at, j * k.width))
                if shrinks:
                    x = builder.call(add, [shrink, x, builder.fmul(weight, values[j])])
                elif renews:
                    x = builder.call(add, [weight, values[j], x])
                if renews:
                    k.store(x, k.at(after, at, j * k.width))
                totals[j].add_incoming(builder.call(add, [looks, x, totals[j]]), body)
            a.add_incoming(builder.add(a, k.number(1)), body)
            builder.branch(head)

            builder.position_at_end(done)
            for j in places:
                k.store(totals[j], k.at(sums, j * k.width))
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return block


_renew_wide, _renew_half, _renew_narrow = (_columns(vectors, True, True) for vectors in (WIDE, HALF, 1))
_add_wide, _add_half, _add_narrow = (_columns(vectors, False, True) for vectors in (WIDE, HALF, 1))
_read_wide, _read_half, _read_narrow = (_columns(vectors, False, False) for vectors in (WIDE, HALF, 1))


@inner
def renew(old, new, decay, weights, reader, value, total):
    """new_a = decay_a old_a + weights_a value; total += sum_a reader_a new_a. The new sums may lie where the old do."""
    e, width = total.size, lanes(total)
    c = 0
    while c + WIDE * width <= e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _renew_wide(x, y, e, decay, weights, reader, v, into)
        c += WIDE * width
    if c + HALF * width <= e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _renew_half(x, y, e, decay, weights, reader, v, into)
        c += HALF * width
    while c + width <= e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _renew_narrow(x, y, e, decay, weights, reader, v, into)
        c += width
    if c < e:
        for a in range(reader.size):
            x, y = window(old, a * e, e), window(new, a * e, e)
            for i in range(c, e):
                y[i] = decay[a] * x[i] + weights[a] * value[i]
                total[i] += reader[a] * y[i]


@inner
def add(old, new, weights, reader, value, total):
    """Do what `renew` does where no old sum shrinks; values are whole vectors."""
    e, width = total.size, lanes(total)
    c = 0
    while c + WIDE * width <= e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _add_wide(x, y, e, weights, weights, reader, v, into)
        c += WIDE * width
    if c + HALF * width <= e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _add_half(x, y, e, weights, weights, reader, v, into)
        c += HALF * width
    while c < e:
        x, y, v, into = window(old, c, 0), window(new, c, 0), window(value, c, 0), window(total, c, 0)
        _add_narrow(x, y, e, weights, weights, reader, v, into)
        c += width


@inner
def read(sums, reader, total):
    """total += sum_a reader_a sums_a."""
    e, width = total.size, lanes(total)
    c = 0
    while c + WIDE * width <= e:
        here, into = window(sums, c, 0), window(total, c, 0)
        _read_wide(here, here, e, reader, reader, reader, into, into)
        c += WIDE * width
    if c + HALF * width <= e:
        here, into = window(sums, c, 0), window(total, c, 0)
        _read_half(here, here, e, reader, reader, reader, into, into)
        c += HALF * width
    while c + width <= e:
        here, into = window(sums, c, 0), window(total, c, 0)
        _read_narrow(here, here, e, reader, reader, reader, into, into)
        c += width
    if c < e:
        for a in range(reader.size):
            x = window(sums, a * e, e)
            for i in range(c, e):
                total[i] += reader[a] * x[i]
