"""Kind, shift and dot product of each row, which the way back reads."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.rows import as_read, read_row

KINDS = ("all", "causal", "parts")
CAUSAL, PARTS = 1, 2

K, V, STATE = range(3)
"""Columns of states: heads of k and of v, and of the mask, the bias and the cotangents of keys."""

QUERY, OUT = range(2)
"""Of reads: heads of q, and of outputs, g and dq."""

PRECISE = 2.0**-10  # the relative error of a weight, from the rounding of its log normaliser


@inner
def _largest(x):
    """Return max_c |x_c|."""
    top = x.dtype.type(0)
    for c in range(x.size):
        top = max(top, abs(x[c]))
    return top


@compiled
def judge_rows(
    q, k, mask, bias, scale, kind_of, states, reads, out, lse, g, of_lse, shifts, dots, far, sizes, low, high
):  # fmt: skip
    """Set shift_i to lse_i and dot_i to g_i.out_i less the cotangent of lse_i, for the queries of states low to high.

    A shift is inf, and the dot 0, for a row without a gradient, as its cotangents are 0 or it sees nothing, and for a
    far one, whose scores may overflow or have no digits after the point: far_i is set for these. Of the other kinds
    CAUSAL a row is judged by the keys that it sees; of PARTS by all that are finite. q, k, out and g are (floats,
    bits, kind), sizes (n, D, l, e).
    """
    n, dim, length, e = sizes
    q, k, out, g, factor = as_read(q), as_read(k), as_read(out), as_read(g), lse.dtype.type(scale)
    kind = np.finfo(lse.dtype)
    limit, precise = lse.dtype.type(kind.max / 64), lse.dtype.type(PRECISE / kind.eps)
    coarse = scale != 0 and not kind.tiny <= abs(factor) < np.inf
    tops, zero, infinity = np.zeros(length, lse.dtype), lse.dtype.type(0), lse.dtype.type(np.inf)
    x, of_out, y = np.empty(dim, lse.dtype), np.empty(e, lse.dtype), np.empty(e, lse.dtype)
    for b in range(low, high):
        # how large the keys are that a row may see
        top = more = zero
        for j in range(length):  # the largest number of the keys up to j; infinite where one is not finite
            if mask.size == 0 or mask[b * length + j]:
                read_row(k, (states[b, K] * length + j) * dim, dim, x, 0)
                if finite(x):
                    top = max(top, _largest(x))
                elif kind_of != PARTS:
                    top = infinity
                if bias.size > 0:
                    more = max(more, bias[b * length + j])
            tops[j] = top
        # the rows
        for r in range(reads.shape[1]):
            for i in range(n):
                at = reads[b, r, OUT] * n + i
                read_row(g, at * e, e, of_out, 0)
                read_row(out, at * e, e, y, 0)
                shift, dot, some = lse[at], zero, False
                for c in range(e):
                    dot += of_out[c] * y[c]
                    some = some or of_out[c] != zero
                if of_lse.size > 0:
                    dot -= of_lse[at]
                    some = some or of_lse[at] != zero
                last = min(length - 1, i + length - n) if kind_of == CAUSAL else length - 1
                far[at] = 0
                if not some or shift == -infinity or last < 0:
                    shift, dot = infinity, zero
                else:
                    read_row(q, (reads[b, r, QUERY] * n + i) * dim, dim, x, 0)
                    reach = zero
                    for c in range(dim):
                        reach += abs(x[c] * factor)
                    if (
                        finite(x)
                        and tops[last] < infinity
                        and abs(shift) < infinity
                        and (
                            coarse
                            or not (reach * max(tops[last], lse.dtype.type(1)) + more < limit and abs(shift) < precise)
                        )
                    ):
                        far[at], shift, dot = 1, infinity, zero
                shifts[at], dots[at] = shift, dot
