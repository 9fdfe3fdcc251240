"""Exact attention by an online softmax over blocks of keys, while a block of queries stays in cache."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import compiled, inner, inner_exact
from kernattn.ops._numba.elementary import decayed
from kernattn.ops._numba.held import finite
from kernattn.ops._numba.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.outputs import write
from kernattn.ops._numba.products import FULL, product, transpose
from kernattn.ops._numba.registers import ROWS, lanes
from kernattn.ops._numba.tiles import load_rows
from kernattn.ops._numba.vectors import load, some, store, where
from kernattn.ops.block_softmax.far_loops import answer_far_row

__all__ = ["online_softmax"]


@inner
def _lowest(like):
    """Return the score of a key that is not seen, below that of any key that counts; one that overflows is lower."""
    return like.dtype.type(-np.finfo(like.dtype).max)


@inner
def _hide(scores, row, rows, columns, first_key, last_key, mask, mask_at):
    """Hide the scores of keys first_key + j that are masked, or stand after last_key + i, the last of query i."""
    nothing = _lowest(scores)
    for j in range(rows):
        x = window(scores, j * row, columns)
        if mask.size > 0 and not mask[mask_at + j]:
            for i in range(columns):
                x[i] = nothing
        for i in range(min(columns, first_key + j - last_key)):
            x[i] = nothing


@inner_exact
def _exponentials(scores, row, rows, columns, peaks, lows, decay, den):
    """Turn scores (keys, queries) into exp(score - peak) under raised peaks; say whether any peak rose."""
    width = lanes(scores)
    rose = False
    for i in range(0, columns, 2 * width):  # two vectors of columns at a time, the last one twice if it is alone
        j = min(i + width, row - width)
        before, before_too = load(peaks, i), load(peaks, j)
        peak, peak_too = before, before_too
        low, low_too = load(lows, i), load(lows, j)
        for at in range(0, rows * row, row):
            x, y = load(scores, at + i), load(scores, at + j)
            peak, peak_too = where(x > peak, x, peak), where(y > peak_too, y, peak_too)
            low, low_too = where(x < low, x, low), where(y < low_too, y, low_too)
        rose = rose or some((peak > before) | (peak_too > before_too))
        store(peak, peaks, i)
        store(peak_too, peaks, j)
        store(low, lows, i)
        store(low_too, lows, j)
        factor, factor_too = decayed(before - peak), decayed(before_too - peak_too)
        store(factor, decay, i)
        store(factor_too, decay, j)
        total, total_too = load(den, i) * factor, load(den, j) * factor_too
        for at in range(0, rows * row, row):
            x, y = load(scores, at + i), load(scores, at + j)
            x, y = decayed(x - peak), decayed(y - peak_too)
            store(x, scores, at + i)
            store(y, scores, at + j)
            total, total_too = total + x, total_too + y
        store(total, den, i)
        store(total_too, den, j)
    return rose


@inner
def _set_aside(values, row_v, keys, width, weights, row, rows, last, num, row_num, clean, row_clean):
    """Copy values with 0 for what is not finite, which goes to the rows that see it: of key j from j - last on."""
    for j in range(keys):
        source, target = window(values, j * row_v, width), window(clean, j * row_clean, width)
        for c in range(width):
            y = source[c]
            if not math.isfinite(y):
                for i in range(max(0, j - last), rows):
                    num[i * row_num + c] += weights[j * row + i] * y
                y = 0
            target[c] = y


@compiled
def online_softmax(
    q, k, v, mask, scale, dim, e, n, length, causal, reads, out, lse, block, key_block, low, high
):  # fmt: skip
    """Answer blocks low to high of `block` queries, the last ones of each read first: they have most to do.

    reads (R, 5): head of q, of k, of v, of the mask, of out.
    """
    q, k, v = whole(q), whole(k), whole(v)
    row_e, size = tile_rows(e, q), tile_rows(block, q)
    room = tile_rows(key_block, q)
    packed_q, packed_k, packed_v = aligned(dim * size, q), aligned(room * dim, q), aligned(room * row_e, q)
    scores, num = aligned(room * size, q), aligned(size * row_e, q)
    peaks, lows, decay, den = aligned(size, q), aligned(size, q), aligned(size, q), aligned(size, q)
    factor, zero = q.dtype.type(scale), q.dtype.type(0)
    coarse = scale != 0 and not np.finfo(q.dtype).tiny <= abs(factor) < np.inf
    blocks = (n + block - 1) // block
    for b in range(low, high):
        r, first = b // blocks, (blocks - 1 - b % blocks) * block
        rows = min(block, n - first)
        transpose(window(q, (reads[r, 0] * n + first) * dim, rows * dim), 0, dim, rows, dim, packed_q, 0, size)
        for i in range(packed_q.size):
            packed_q[i] *= factor
        for i in range(size):
            peaks[i] = _lowest(q) / 2
            lows[i] = den[i] = zero
        for i in range(num.size):
            num[i] = 0
        position = first + length - n  # the last key that row 0 of the block sees
        stop = min(length, position + rows) if causal else length
        for at in range(0, stop, key_block):
            count = min(key_block, stop - at)
            keys = window(k, (reads[r, 1] * length + at) * dim, count * dim)
            values, step = window(v, (reads[r, 2] * length + at) * e, count * e), e
            if mask.size > 0 or count % ROWS > 0 or e % lanes(q) > 0:
                load_rows(
                    k, (reads[r, 1] * length + at) * dim, count, dim, mask, reads[r, 3] * length + at, packed_k, dim
                )
                load_rows(
                    v, (reads[r, 2] * length + at) * e, count, e, mask, reads[r, 3] * length + at, packed_v, row_e
                )
                keys, values, step = window(packed_k, 0, packed_k.size), window(packed_v, 0, packed_v.size), row_e
            # scores[j, i] = k_j . q_i
            product(keys, 0, dim, 1, packed_q, 0, size, scores, 0, size, count, rows, dim, False, FULL)
            cut = causal and at + count - 1 > position
            if mask.size > 0 or cut:
                last = position if causal else at + count
                _hide(scores, size, count, rows, at, last, mask, reads[r, 3] * length + at)
            if _exponentials(scores, size, count, rows, peaks, lows, decay, den):
                for i in range(rows):
                    x, shrunk = window(num, i * row_e, row_e), decay[i]
                    for c in range(row_e):
                        x[c] *= shrunk
            if cut and not finite(window(values, 0, (count - 1) * step + e)):
                last = position - at
                _set_aside(values, step, count, e, scores, size, rows, last, num, row_e, packed_v, row_e)
                values, step = window(packed_v, 0, packed_v.size), row_e
            product(scores, 0, 1, size, values, 0, step, num, 0, row_e, rows, e, count, True, FULL)
        write(num, row_e, rows, e, den, out, (reads[r, 4] * n + first) * e)
        for i in range(rows):
            row = reads[r, 4] * n + first + i
            lse[row] = peaks[i] + math.log(den[i]) if den[i] != 0 else -np.inf
            if coarse or lows[i] == -np.inf or not (den[i] > 0 and finite(window(num, i * row_e, e))):
                answer_far_row(
                    window(q, (reads[r, 0] * n + first + i) * dim, dim),
                    window(k, reads[r, 1] * length * dim, length * dim),
                    window(v, reads[r, 2] * length * e, length * e),
                    e, mask, reads[r, 3] * length, min(length, position + i + 1) if causal else length, scale,
                    window(out, row * e, e), lse, row,
                )  # fmt: skip
