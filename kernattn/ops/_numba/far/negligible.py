"""Positive features, and sums of them, that lie too far below their unit count as 0.

Products of smaller ones would lose their digits, and averages would leave the values. A query that meets nothing else
but what is small is raised: a power of two cancels.
"""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import weight
from kernattn.ops._numba.far.clamped import ends


@inner
def negligible_size(like):
    """Return the size below which positive features of keys, and sums of them, count as 0."""
    return like.dtype.type(ends(like).faint)


@inner
def low_normaliser(like):
    """Return the size below which the normaliser of positive features loses digits in its products."""
    return like.dtype.type(ends(like).low)


@inner
def _octaves_up(den, like):
    """Return by how many octaves a query with this normaliser is raised, which then stays below 1 / 4.

    So its sums with values are floats where the values are.
    """
    most = ends(like).raised_most
    return like.dtype.type(most if den < 2.0 ** -(most + 2) else ends(like).raised)


@inner
def clear_negligible(values):
    """Put zeros in place of what is faint, and return the sum."""
    zero, least = values.dtype.type(0), negligible_size(values)
    total = zero
    for a in range(values.size):
        x = zero if values[a] < least else values[a]
        values[a] = x
        total += x
    return total


@inner
def _meet(tile, row, i, features, z, keys, row_k, scales, count):
    """Does query i share a feature with the sums, or with one of the first keys?"""
    zero, nothing = tile.dtype.type(0), tile.dtype.type(-np.inf)
    for a in range(features):
        if tile[a * row + i] > zero and z[a] > zero:
            return True
    for j in range(count):
        if scales[j] > nothing:
            for a in range(features):
                if tile[a * row + i] > zero and keys[j * row_k + a] > zero:
                    return True
    return False


@inner
def raise_queries(tile, row, rows, features, z, keys, row_k, scales, all_seen, den, inside, octaves):
    """Raise queries (M, C) that meet nothing but what is small, so that products keep their digits; return how many.

    Their large features meet zeros. den is that over z, `inside` that over keys (C, M) of the chunk with these scales,
    of which a query sees those up to its own, or all.
    """
    zero, low = tile.dtype.type(0), low_normaliser(tile)
    raised = 0
    for i in range(rows):
        count = min(rows if all_seen else i + 1, scales.size)
        if den[i] + inside[i] < low and _meet(tile, row, i, features, z, keys, row_k, scales, count):
            up = _octaves_up(den[i] + inside[i], tile)
            factor = weight(zero, up, zero)
            den[i] = zero
            for a in range(features):
                tile[a * row + i] *= factor
                den[i] += tile[a * row + i] * z[a]
            octaves[i] -= up
            raised += 1
    return raised


@inner
def clear_negligible_factors(decay, z):
    """Put zeros in place of factors that would make sums z of positive features faint."""
    if decay[0] != 1:
        for a in range(z.size):
            decay[a] = 0 if z[a] * decay[a] < negligible_size(z) else decay[a]


@inner
def raise_token(values, z, den):
    """Raise the features of one query whose normaliser over z is so small; return the new one."""
    total, factor = z.dtype.type(0), weight(z.dtype.type(0), _octaves_up(den, z), z.dtype.type(0))
    for a in range(z.size):
        values[a] *= factor
        total += values[a] * z[a]
    return total
