"""What the elementary functions are made of: minimax polynomials, parts of ln 2 and pi, and the ends of the floats."""

import numpy as np
from numba import types

from kernattn.ops._numba.codegen.vectors import element


class Single:
    """Constants of float32."""

    mantissa, sign = 23, 31
    magic = np.float32(1.5 * 2**23)  # x + magic - magic rounds x to an integer, whose low bits are those of x + magic
    normal, bottom, overflow = np.float32(-87.0), np.float32(-103.98), np.float32(88.72283)
    lift, lifted = np.float32(64.0), np.float32(2.0**-64)  # by which powers of two stay normal from bottom on
    lowest, biased = np.float32(-125.0), np.float32(1.5 * 2**23 + 126)
    infinity, zero, half, one, two = (np.float32(c) for c in (np.inf, 0.0, 0.5, 1.0, 2.0))
    log2e, log2_high, log2_low = (np.float32(c) for c in (1.4426950408889634, 0.693145751953125, 1.428606765330187e-06))
    log2 = np.float32(0.6931471805599453)
    exp = tuple(
        np.float32(c)
        for c in (0.5, 0.166665181517601, 0.04166620597243309, 0.008368917740881443, 0.0013950541615486145)
    )
    power = tuple(  # 2^r, from r on
        np.float32(c)
        for c in (
            0.6931470036506653,
            0.24022242426872253,
            0.05550733581185341,
            0.009671512991189957,
            0.001326472731307149,
        )
    )
    pi = tuple(np.float32(c) for c in (1.570770263671875, 2.6063062250614166e-05, 6.0771e-11))  # of pi / 2
    over_pi, two_over_pi = np.float32(0.3183098861837907), np.float32(0.6366197723675814)
    sine = tuple(np.float32(c) for c in (-0.16666655242443085, 0.008332176133990288, -0.00019516977772582322))
    cosine = tuple(np.float32(c) for c in (0.04166664555668831, -0.0013887364184483886, 2.443809171381872e-05))
    wide_sine = tuple(
        np.float32(c)
        for c in (
            -0.1666666716337204,
            0.008333330973982811,
            -0.00019840893219225109,
            2.752657792370883e-06,
            -2.3908478752332485e-08,
        )
    )
    reach = np.float32(1e5)


class Double:
    """Constants of float64."""

    mantissa, sign = 52, 63
    magic = 1.5 * 2**52
    normal, bottom, overflow = -708.0, -745.14, 709.782712893384
    lift, lifted = 128.0, 2.0**-128
    lowest, biased = -1021.0, 1.5 * 2**52 + 1022
    infinity, zero, half, one, two = np.inf, 0.0, 0.5, 1.0, 2.0
    log2e, log2_high, log2_low = 1.4426950408889634, 0.6931471805582987, 1.6465949582897082e-12
    log2 = 0.6931471805599453
    exp = (
        0.5000000000000013,
        0.166666666666667,
        0.04166666666651493,
        0.008333333333307123,
        0.0013888888947156057,
        0.00019841269917562364,
        2.480148978588484e-05,
        2.7557216139899635e-06,
        2.7631339690467973e-07,
        2.5117912394195676e-08,
    )
    pi = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
    over_pi, two_over_pi = 0.3183098861837907, 0.6366197723675814
    sine = (
        -0.16666666666666632,
        0.00833333333332237,
        -0.0001984126982977116,
        2.755731367866392e-06,
        -2.5050755961167598e-08,
        1.5896666495311365e-10,
    )
    cosine = (
        0.0416666666666666,
        -0.0013888888888874064,
        2.480158728944344e-05,
        -2.755731434064887e-07,
        2.0875721622397174e-09,
        -1.135955926603379e-11,
    )
    wide_sine = (
        -0.16666666666666666,
        0.008333333333333212,
        -0.00019841269841215024,
        2.7557319212084457e-06,
        -2.5052106955609312e-08,
        1.6058943689613043e-10,
        -7.643090913693644e-13,
        2.7221807904760064e-15,
    )
    reach = 1e6


def constants(x: types.Type) -> type[Single] | type[Double]:
    """Return the constants for a float, or a vector of floats."""
    return Single if element(x) == types.float32 else Double
