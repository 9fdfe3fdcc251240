"""exp, cos and sincos without branches or calls, so that LLVM vectorises the loops around them.

Range reduction by Cody and Waite, minimax polynomials whose error is below the rounding, exponents put
together in the bits.

Sums of exponentials are kept in units of 2^u, u whole: e^x = 2^n p(r) with n = rint(x / ln 2), so that
`weight(x, up, down)`, 2^(n + up - down) p(r), has the same digits under every unit.
"""

import math
from functools import wraps
from typing import Any

from numba import types

from kernattn.ops._numba.codegen.bits import add, and_, bits, floor, rint, scaled_512, shift_left, xor
from kernattn.ops._numba.codegen.compile import EXACT, OPTIONS, overload
from kernattn.ops._numba.codegen.constants import Single, constants
from kernattn.ops._numba.codegen.parts import PartCompiler
from kernattn.ops._numba.codegen.vectors import Vector, every, some, where

_OPTIONS: dict[str, Any] = {"fastmath": EXACT, "pipeline_class": PartCompiler, "no_cfunc_wrapper": True, **OPTIONS}


def elementary(make):
    """Let compiled code call a function by this name: the one that `make` returns for the types of its arguments."""

    @wraps(make)
    def function(*given):
        raise TypeError(f"{make.__name__} is a part of loops: compiled code alone calls it")

    overload(function, jit_options=_OPTIONS)(make)
    return function


@elementary
def _polynomial(r, coefficients):
    """Return sum_i coefficients_i r^i; what LLVM makes of it has no loop."""
    last = len(coefficients) - 1

    def polynomial(r, coefficients):
        total = every(r, coefficients[last])
        for i in range(last):
            total = total * r + coefficients[last - 1 - i]
        return total

    return polynomial


@elementary
def exponential(x):
    """Return e^x, down to the least number of the dtype."""
    c = constants(x)
    mantissa, magic, normal, bottom, overflow = c.mantissa, c.magic, c.normal, c.bottom, c.overflow
    infinity, zero, one, lift, lifted = c.infinity, c.zero, c.one, c.lift, c.lifted
    log2e, high, low, coefficients = c.log2e, c.log2_high, c.log2_low, c.exp

    def of_number(x):
        t = x * log2e + magic
        count = t - magic
        r = (x - count * high) - count * low
        p = _polynomial(r, coefficients) * (r * r) + r + one
        faint = x < normal
        y = bits(add(bits(p), shift_left(bits(where(faint, t + lift, t)), mantissa)))
        y = where(x > bottom, where(faint, y * lifted, y), zero)
        return y if x < overflow else x + infinity

    def of_vector(x):
        t = x * log2e + magic
        count = t - magic
        r = (x - count * high) - count * low
        p = _polynomial(r, coefficients) * (r * r) + r + one
        y = bits(add(bits(p), shift_left(bits(t), mantissa)))
        faint = x < normal
        if some(faint):
            small = bits(add(bits(p), shift_left(bits(t + lift), mantissa))) * lifted
            y = where(faint, where(x > bottom, small, zero), y)
        return where(x < overflow, y, x + infinity)

    return of_vector if isinstance(x, Vector) else of_number


@elementary
def octaves(x):
    """Return the whole number n for which e^x = 2^n p, p between the square roots of 1/2 and 2."""
    log2e = constants(x).log2e

    def octaves(x):
        return rint(x * log2e)

    return octaves


@elementary
def unit_of(x):
    """Return the whole number u for which 2^u <= e^x < 2^(u + 1), but for rounding."""
    log2e = constants(x).log2e

    def unit_of(x):
        return floor(x * log2e)

    return unit_of


@elementary
def log_of(unit):
    """Return ln 2^unit, as states store it: `change_of_unit` finds the unit again."""
    log2 = constants(unit).log2

    def log_of(unit):
        return unit * log2

    return log_of


@elementary
def _scaled(r, n, up, down):
    """Return e^r 2^(n + up - down), 0 below the normal numbers; |r| is held to 1/2: beyond, x had no such digits."""
    c = constants(r)
    mantissa, biased, lowest, zero, half = c.mantissa, c.biased, c.lowest, c.zero, c.half
    coefficients = tuple(c.two * x for x in (c.one, c.one, *c.exp))  # of 2 e^r: a product that is not 0 is normal

    def scaled(r, n, up, down):
        d = (n + up) - down
        r = where(r > half, half, r)
        r = where(r < -half, -half, r)
        power = bits(shift_left(bits(d + biased), mantissa))  # 2^(d - 1)
        y = _polynomial(r, coefficients) * power
        return where(d < lowest, zero, y)

    return scaled


@elementary
def weight(x, up, down):
    """Return e^x 2^(up - down), at most about 2^127: for whole numbers up and down the digits are those of e^x."""
    c = constants(x)
    log2e, high, low = c.log2e, c.log2_high, c.log2_low

    def weight(x, up, down):
        n = rint(x * log2e)
        return _scaled((x - n * high) - n * low, n, up, down)

    return weight


@elementary
def decayed(x):
    """Return e^x for x <= 0; 0 where it is below the normal numbers."""
    c = constants(x)
    mantissa, biased, log2e, high, low = c.mantissa, c.biased, c.log2e, c.log2_high, c.log2_low
    bottom, coefficients = (c.lowest - c.one) * c.log2, tuple(c.two * a for a in (c.one, c.one, *c.exp))

    def decayed(x):
        x = where(x < bottom, bottom, x)  # whose power is 0
        n = rint(x * log2e)
        power = bits(shift_left(bits(n + biased), mantissa))  # 2^(n - 1)
        return _polynomial((x - n * high) - n * low, coefficients) * power

    return decayed


@elementary
def power_of_two(x):
    """Return 2^x in float32, to 2e-7 of it, for finite x <= 0 or little above; 0 where x is far below."""
    c = constants(x)
    mantissa, biased, bottom = c.mantissa, c.biased, c.lowest - c.one
    whole = (c.one, *Single.power)
    coefficients = tuple(c.two * a for a in whole)

    def power_of_two(x):
        x = where(x < bottom, bottom, x)  # whose power is 0
        n = rint(x)
        power = bits(shift_left(bits(n + biased), mantissa))  # 2^(n - 1)
        return _polynomial(x - n, coefficients) * power

    def by_instruction(x):
        n = rint(x)
        return scaled_512(_polynomial(x - n, whole), n)

    return by_instruction if isinstance(x, Vector) and x.dtype.bitwidth * x.count == 512 else power_of_two


@elementary
def vanishing(x):
    """Return e^x for x <= 0, down to the least number: the same digits as those of `decayed`."""
    c = constants(x)
    mantissa, biased, log2e, high, low = c.mantissa, c.biased, c.log2e, c.log2_high, c.log2_low
    lowest, lift, lifted, bottom = c.lowest, c.lift, c.lifted, c.bottom - c.one
    coefficients = tuple(c.two * a for a in (c.one, c.one, *c.exp))

    def vanishing(x):
        x = where(x < bottom, bottom, x)
        n = rint(x * log2e)
        faint = n < lowest
        power = bits(shift_left(bits(where(faint, n + lift, n) + biased), mantissa))  # 2^(n - 1), lifted where faint
        y = _polynomial((x - n * high) - n * low, coefficients) * power
        return where(faint, y * lifted, y)

    return vanishing


@elementary
def change_of_unit(peak, up, down):
    """Return e^peak 2^(up - down); exact where peak is the log of a unit."""
    c = constants(peak)
    log2, log2e, high, low, zero = c.log2, c.log2e, c.log2_high, c.log2_low, c.zero

    def change_of_unit(peak, up, down):
        n = rint(peak * log2e)
        r = (peak - n * high) - n * low
        return _scaled(zero if n * log2 == peak else r, n, up, down)

    return change_of_unit


@elementary
def cosine(x):
    """Return cos(x) for |x| within reach."""
    c = constants(x)
    sign, magic, half, one, two, over_pi = c.sign, c.magic, c.half, c.one, c.two, c.over_pi
    first, second, third = c.pi
    coefficients = c.wide_sine

    def cosine(x):
        t = (x * over_pi + half) + magic
        odd = two * (t - magic) - one
        r = ((x - odd * first) - odd * second) - odd * third  # x = odd pi / 2 + r, so that cos x = +-sin r
        square = r * r
        y = _polynomial(square, coefficients) * (square * r) + r
        return bits(xor(bits(y), shift_left(bits(t), sign)))

    return cosine


@elementary
def sine_cosine(x):
    """Return (sin(x), cos(x)) for |x| within reach."""
    c = constants(x)
    sign, magic, half, one, two_over_pi = c.sign, c.magic, c.half, c.one, c.two_over_pi
    first, second, third = c.pi
    sine_coefficients, cosine_coefficients = c.sine, c.cosine
    integer = types.int32 if c is Single else types.int64

    def sine_cosine(x):
        t = x * two_over_pi + magic
        count = t - magic
        r = ((x - count * first) - count * second) - count * third
        square = r * r
        s = _polynomial(square, sine_coefficients) * (square * r) + r
        c = _polynomial(square, cosine_coefficients) * (square * square) + (one - half * square)
        quarter = bits(t)
        swap = and_(quarter, 1) != integer(0)
        a, b = (c, s) if swap else (s, c)
        a = bits(xor(bits(a), shift_left(and_(quarter, 2), sign - 1)))
        b = bits(xor(bits(b), shift_left(and_(add(quarter, integer(1)), 2), sign - 1)))
        return a, b

    return sine_cosine


@elementary
def within_reach(x):
    """Is |x| small enough for the range reduction of the cosine?"""
    reach = constants(x).reach

    def within_reach(x):
        return math.fabs(x) < reach

    return within_reach
