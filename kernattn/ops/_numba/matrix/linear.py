"""What loops of linear attention on the unit share: which numbers are far, and how weights of queries are packed."""

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.matrix.parts import is_far, pack_pairs, round_rows

FAR_VALUES, FAR_SUM, FAINT, FAINT_SUM = 2.0**36, 2.0**80, 2.0**-40, 2.0**-80
"""Sums of values, and sums that came before, from which on rows are far; the least value, and the least normaliser,
beside which what tiles take for 0 is below the rounding; the same of the largest sum of a column of values."""


@inner
def far_sums(sums):
    """Are there sums that tiles cannot hold, or sums of features of both signs, which may cancel?"""
    kind = sums.z.dtype.type
    zero, faint, most, far, small = kind(0), kind(FAINT_SUM), kind(FAR_SUM), False, False
    for a in range(sums.features):
        x = window(sums.s, a * sums.row, sums.e)
        far = far or sums.z[a] < zero or is_far(x, zero, most)
        small = small or is_far(x, faint, most)
    for c in range(sums.e if small and not far else 0):
        largest = zero
        for a in range(sums.features):
            largest = max(largest, abs(sums.s[a * sums.row + c]))
        far = far or (zero < largest and largest < faint)
    return far or is_far(window(sums.z, 0, sums.features), zero, most)


@inner
def round_queries(queries, size, features, rows, z, den):
    """Round weights of queries (M, C) to one bfloat16, and renew their normalisers: both are of the same numbers."""
    round_rows(queries, size, features, rows)
    for i in range(rows):
        den[i] = 0
    for a in range(features):
        x, weight = window(queries, a * size, rows), z[a]
        for i in range(rows):
            den[i] += x[i] * weight


@inner
def pack_queries(queries, size, features, columns, pairs, whole_features, made):
    """Pack weights of queries (M, C) by pairs of features; parts are of `whole_features`, whole blocks."""
    if features % 2 > 0:
        x = window(queries, features * size, size)
        for i in range(size):
            x[i] = 0
    pack_pairs(queries, size, pad(features, 2), columns, pairs, size, whole_features // 2 * size, made)
