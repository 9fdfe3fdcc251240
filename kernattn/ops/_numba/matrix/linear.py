"""What loops of linear attention on the unit share: which numbers are far, and how weights of queries are packed."""

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.matrix.parts import is_far, pack_pairs, round_rows

FAR_VALUES, FAR_SUM, FAINT = 2.0**36, 2.0**80, 2.0**-40
"""Sums of values, and sums that came before, from which on rows are far; the least value, and the least normaliser,
beside which what tiles take for 0 is below the rounding."""


@inner
def far_sums(sums):
    """Are there sums that tiles cannot hold, or sums of features of both signs, which may cancel?"""
    zero, far = sums.z.dtype.type(0), False
    for a in range(sums.features):
        far = far or sums.z[a] < zero or is_far(window(sums.s, a * sums.row, sums.e), zero, sums.z.dtype.type(FAR_SUM))
    return far or is_far(window(sums.z, 0, sums.features), zero, sums.z.dtype.type(FAR_SUM))


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
