"""Rows of exact attention whose scores or sums leave the range of floats, one by one, in float64 and units of 2^u.

A row is judged by itself and reads only the keys that it sees. Nothing here is fast; the tests that find such rows are.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.rows import read_row

HALF = 500  # octaves: rows of q and k end below 2^500, so that a sum of their products is finite
OCTAVES = 5000  # more than any score of finite numbers has


@inner_exact
def _scale_down(x, y):
    """Write x 2^-e below 2^HALF to y; return e."""
    largest = 0.0
    for i in range(x.size):
        largest = max(largest, abs(float(x[i])))
    e = max(math.frexp(largest)[1], -HALF) - HALF
    factor = math.ldexp(1.0, -e)
    for i in range(x.size):
        y[i] = factor * x[i]
    return e


@inner
def far_dot(x, y):
    """Return the product of two rows in float64."""
    total = 0.0
    for i in range(x.size):
        total += float(x[i]) * float(y[i])
    return total


@inner_exact
def _weights(scores, octaves):
    """Turn scores 2^octaves into exponentials of their differences to the largest; return its log, and their sum."""
    unit, peak = 0, np.inf
    for unit in range(0, OCTAVES, 1000):  # that in which the largest is finite: the differences of others may overflow
        peak = -np.inf
        for j in range(scores.size):
            peak = max(peak, math.ldexp(scores[j], octaves[j] - unit))
        if not math.isinf(peak):
            break
    total = 0.0
    for j in range(scores.size):
        scores[j] = math.exp(math.ldexp(math.ldexp(scores[j], octaves[j] - unit) - peak, unit))
        total += scores[j]
    return math.ldexp(peak, unit) + math.log(total), total


@inner_exact
def _far_scores(q, k, at, seen, scale, scores, octaves):
    """Write the scores of the `seen` keys, in units of 2^octaves."""
    dim, room = q.size, np.empty_like(q)
    mantissa, octave = math.frexp(scale)
    x, y = np.empty(dim), np.empty(dim)
    octave += _scale_down(q, x)
    for i in range(seen.size):
        read_row(k, at + seen[i] * dim, dim, room, 0)
        octaves[i] = octave + _scale_down(room, y)
        scores[i] = mantissa * far_dot(x, y)


@inner_exact
def _add(scores, octaves, added):
    """Add what is added to the score of each key, where the sum is a float."""
    for i in range(added.size):
        score = math.ldexp(scores[i], octaves[i]) + added[i]
        if math.isfinite(score):
            scores[i], octaves[i] = score, 0


@inner_exact
def far_weights(q, k, at, seen, added, scale, scores):
    """Write the exponentials of the scores of the `seen` keys, the largest off; return its log, and their sum.

    Keys are rows (floats, bits, kind) from `at` on; `added` is what is added to the scores, or no numbers.
    """
    octaves = np.empty(seen.size, np.int64)
    _far_scores(q, k, at, seen, scale, scores, octaves)
    _add(scores, octaves, added)
    return _weights(scores, octaves)


@inner_exact
def answer_far_row(queries, at_q, k, at_k, v, at_v, dim, e, seen, added, scale, out, lse, at):
    """Write the answer of a query that sees the rows `seen` of k; leave it where any of its inputs is not finite.

    Rows are (floats, bits, kind). The answer stays among the values that the query sees, its log normaliser among the
    floats.
    """
    keys, q, key, value = seen.size, np.empty(dim, lse.dtype), np.empty(dim, lse.dtype), np.empty(e, lse.dtype)
    read_row(queries, at_q, dim, q, 0)
    for i in range(keys):
        read_row(k, at_k + seen[i] * dim, dim, key, 0)
        read_row(v, at_v + seen[i] * e, e, value, 0)
        if not (finite(key) and finite(value)):
            return
    if not finite(added):
        return
    if keys == 0 or not (finite(q) and math.isfinite(scale)):
        return
    scores = np.empty(keys)
    log, total = far_weights(q, k, at_k, seen, added, scale, scores)
    sums, low, high = np.zeros(e), np.full(e, np.inf), np.full(e, -np.inf)
    for i in range(keys):
        share = scores[i] / total
        read_row(v, at_v + seen[i] * e, e, value, 0)
        for c in range(e):
            y = float(value[c])
            sums[c] += share * y
            low[c], high[c] = min(low[c], y), max(high[c], y)
    for c in range(e):
        out[c] = min(max(sums[c], low[c]), high[c])
    largest = float(np.finfo(lse.dtype).max)
    lse[at] = min(max(log, -largest), largest)
