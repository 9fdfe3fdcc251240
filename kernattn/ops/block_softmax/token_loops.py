"""Exact attention of one query of each head, which is bound by the reading of keys and values.

The loop for blocks fills vectors with queries; here they are filled with the numbers of a key, and then of a value.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import whole, window
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops.block_softmax.loops import READ
from kernattn.ops.block_softmax.pair_loops import lowest


@inner
def _scores(query, keys, dim, scores):
    """Set the products of a query with each key."""
    for j in range(scores.size):
        key, total = window(keys, j * dim, dim), query[0] - query[0]
        for c in range(dim):
            total += query[c] * key[c]
        scores[j] = total


@inner
def _adjust(scores, mask, bias, at):
    """Hide the scores of masked keys, and add to the others what is added to theirs."""
    nothing = lowest(scores)
    for j in range(scores.size):
        if mask.size > 0 and not mask[at + j]:
            scores[j] = nothing
        elif bias.size > 0:
            scores[j] += bias[at + j]


@inner_exact
def _weights(scores):
    """Turn scores into exp(score - peak); return the lowest of them, or 0, and the peak."""
    peak, least = scores[0], scores[0] - scores[0]
    for j in range(scores.size):
        peak, least = max(peak, scores[j]), min(least, scores[j])
    for j in range(scores.size):
        scores[j] = decayed(scores[j] - peak)
    return least, peak


@inner
def _sum_of(weights):
    total = weights[0] - weights[0]
    for j in range(weights.size):
        total += weights[j]
    return total


@inner
def _mean(weights, values, e, factor, out):
    """Set the sum of values by their weights, times a factor; four values at a time."""
    out[:] = 0
    count = weights.size // 4 * 4
    for j in range(0, count, 4):
        a, b, c, d = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        rows = window(values, j * e, 4 * e)
        for i in range(e):
            out[i] += (a * rows[i] + b * rows[e + i]) + (c * rows[2 * e + i] + d * rows[3 * e + i])
    for j in range(count, weights.size):
        row = window(values, j * e, e)
        for i in range(e):
            out[i] += weights[j] * row[i]
    for i in range(e):
        out[i] *= factor


@compiled
def one_query(q, k, v, mask, bias, scale, reads, out, lse, told, sizes, low, high):
    """Answer reads low to high; q (heads, D), k (heads, L, D), v (heads, L, e) and out (heads, e) are flat.

    Reads are as `loops.online_softmax` has them. Those whose numbers leave the range of floats, or that see no key, are
    told, for that loop to answer.
    """
    (_, dim, length, e), factor = sizes, lse.dtype.type(scale)
    q, k, v, reads = whole(q), whole(k), whole(v), whole(reads)
    scores, query = np.empty(length, lse.dtype), np.empty(dim, lse.dtype)
    coarse = scale != 0 and not np.finfo(lse.dtype).tiny <= abs(factor) < np.inf
    for r in range(low, high):
        at_q, at_k, at_v = reads[READ * r], reads[READ * r + 1] * length, reads[READ * r + 2] * length
        at_m, at = reads[READ * r + 3] * length, reads[READ * r + 4]
        for c in range(dim):
            query[c] = factor * q[at_q * dim + c]
        _scores(query, window(k, at_k * dim, length * dim), dim, scores)
        if mask.size > 0 or bias.size > 0:
            _adjust(scores, mask, bias, at_m)
        least, peak = _weights(scores)
        total, row = _sum_of(scores), window(out, at * e, e)
        _mean(scores, window(v, at_v * e, length * e), e, 1 / total, row)
        lse[at] = peak + math.log(total)
        told[r] = coarse or least == -np.inf or not (peak > lowest(scores) and total > 0 and finite(row))
