"""Exact attention by an online softmax over blocks of keys, while a block of queries stays in cache."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import compiled, inner, inner_exact
from kernattn.ops._numba.elementary import decayed
from kernattn.ops._numba.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.outputs import write
from kernattn.ops._numba.products import FULL, product, transpose
from kernattn.ops._numba.registers import ROWS, lanes
from kernattn.ops._numba.tiles import load_rows
from kernattn.ops._numba.vectors import load, some, store, where

__all__ = ["online_softmax"]


@inner
def _hide(scores, row, rows, columns, first_key, last_key, mask, mask_at):
    """Put -inf where key first_key + j is masked, or stands after last_key + i, the last that query i sees."""
    nothing = scores.dtype.type(-np.inf)
    for j in range(rows):
        x = window(scores, j * row, columns)
        if mask.size > 0 and not mask[mask_at + j]:
            for i in range(columns):
                x[i] = nothing
        for i in range(min(columns, first_key + j - last_key)):
            x[i] = nothing


@inner_exact
def _exponentials(scores, row, rows, columns, peaks, decay, den):
    """Turn scores (keys, queries) into exp(score - peak) under raised peaks; say whether any peak rose."""
    nothing, zero, width = scores.dtype.type(-np.inf), scores.dtype.type(0), lanes(scores)
    rose = False
    for i in range(0, columns, 2 * width):  # two vectors of columns at a time, the last one twice if it is alone
        j = min(i + width, row - width)
        before, before_too = load(peaks, i), load(peaks, j)
        peak, peak_too = before, before_too
        for at in range(0, rows * row, row):
            x, y = load(scores, at + i), load(scores, at + j)
            peak, peak_too = where(x > peak, x, peak), where(y > peak_too, y, peak_too)
        rose = rose or some((peak > before) | (peak_too > before_too))
        store(peak, peaks, i)
        store(peak_too, peaks, j)
        unit, unit_too = where(peak == nothing, zero, peak), where(peak_too == nothing, zero, peak_too)
        factor, factor_too = decayed(before - unit), decayed(before_too - unit_too)
        store(factor, decay, i)
        store(factor_too, decay, j)
        total, total_too = load(den, i) * factor, load(den, j) * factor_too
        for at in range(0, rows * row, row):
            x, y = load(scores, at + i), load(scores, at + j)
            x, y = decayed(x - unit), decayed(y - unit_too)
            store(x, scores, at + i)
            store(y, scores, at + j)
            total, total_too = total + x, total_too + y
        store(total, den, i)
        store(total_too, den, j)
    return rose


@inner
def _finite(values, row, rows, width):
    """Are all of the values finite?"""
    zero = values.dtype.type(0)
    total = zero
    for j in range(rows):
        x = window(values, j * row, width)
        for i in range(width):
            total += x[i] * zero
    return total == zero


@inner
def _cut_product(weights, row, rows, values, row_v, keys, width, last, num, row_num):
    """Add to num_i only the values that query i sees, the first last + i + 1: the others may be anything."""
    for i in range(rows):
        x = window(num, i * row_num, width)
        for j in range(min(keys, last + i + 1)):
            y, weight = window(values, j * row_v, width), weights[j * row + i]
            for c in range(width):
                x[c] += weight * y[c]


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
    peaks, decay, den = aligned(size, q), aligned(size, q), aligned(size, q)
    blocks = (n + block - 1) // block
    for b in range(low, high):
        r, first = b // blocks, (blocks - 1 - b % blocks) * block
        rows = min(block, n - first)
        transpose(window(q, (reads[r, 0] * n + first) * dim, rows * dim), 0, dim, rows, dim, packed_q, 0, size)
        for i in range(packed_q.size):
            packed_q[i] *= scale
        for i in range(size):
            peaks[i] = -np.inf
            den[i] = 0
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
            if _exponentials(scores, size, count, rows, peaks, decay, den):
                for i in range(rows):
                    x, factor = window(num, i * row_e, row_e), decay[i]
                    for c in range(row_e):
                        x[c] *= factor
            if cut and not _finite(values, step, count, e):
                _cut_product(scores, size, rows, values, step, count, e, position - at, num, row_e)
            else:
                product(scores, 0, 1, size, values, 0, step, num, 0, row_e, rows, e, count, True, FULL)
        write(num, row_e, rows, e, den, out, (reads[r, 4] * n + first) * e)
        for i in range(rows):
            seen = den[i] != 0
            lse[reads[r, 4] * n + first + i] = peaks[i] + math.log(den[i]) if seen else -np.inf
