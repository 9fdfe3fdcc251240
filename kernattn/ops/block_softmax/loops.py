"""Exact attention by an online softmax over blocks of keys, while a block of queries stays in cache."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Any, NamedTuple

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

__all__ = ["Scratch", "online_softmax"]


class Scratch(NamedTuple):
    """Where a block of queries is answered; made in compiled code, where it costs nothing."""

    queries: Any  # (D, size), times the scale
    keys: Any  # (room, D), of a block of keys, as `values` and `scores` are
    values: Any  # (room, row)
    scores: Any  # (room, size)
    num: Any  # (size, row), the sums of values
    peaks: Any  # (size,), the highest score of each query so far
    lows: Any  # the lowest, or 0
    decay: Any  # by how much its sums shrink as the peak rises
    den: Any  # its sum of weights
    size: Any
    row: Any


@inner
def _lowest(like):
    """Return the score of a key that is not seen, below that of any key that counts; one that overflows is lower."""
    return like.dtype.type(-np.finfo(like.dtype).max)


@inner
def _hide(scores, row, rows, columns, last, mask, mask_at):
    """Hide the scores of keys j that are masked, or stand after last + i, the last of query i."""
    nothing = _lowest(scores)
    for j in range(rows):
        x = window(scores, j * row, columns)
        if mask.size > 0 and not mask[mask_at + j]:
            for i in range(columns):
                x[i] = nothing
        for i in range(min(columns, j - last)):
            x[i] = nothing


@inner_exact
def _exponentials(scratch, rows, columns):
    """Turn scores (keys, queries) into exp(score - peak) under raised peaks; say whether any peak rose."""
    scores, row, width = scratch.scores, scratch.size, lanes(scratch.scores)
    peaks, lows, decay, den = scratch.peaks, scratch.lows, scratch.decay, scratch.den
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


@inner
def _scratch(dim, e, block, key_block, like):
    """Return room for blocks of so many queries and keys."""
    row, size, room = tile_rows(e, like), tile_rows(block, like), tile_rows(key_block, like)
    return Scratch(
        aligned(dim * size, like), aligned(room * dim, like), aligned(room * row, like), aligned(room * size, like),
        aligned(size * row, like), aligned(size, like), aligned(size, like), aligned(size, like), aligned(size, like),
        size, row,
    )  # fmt: skip


@inner
def _begin(scratch, q, at, rows, dim, factor):
    """Read a block of queries, and forget every key."""
    queries, num, size, zero = scratch.queries, scratch.num, scratch.size, q.dtype.type(0)
    transpose(window(q, at, rows * dim), 0, dim, rows, dim, queries, 0, size)
    for i in range(queries.size):
        queries[i] *= factor
    for i in range(size):
        scratch.peaks[i] = _lowest(q) / 2
        scratch.lows[i] = scratch.den[i] = zero
    for i in range(num.size):
        num[i] = 0


@inner
def _weights(scratch, keys, dim, rows, count, mask, mask_at, last, cut):
    """Turn a block of keys into their weights for each query under raised peaks, and shrink what was summed."""
    scores, num, size, row = scratch.scores, scratch.num, scratch.size, scratch.row
    # scores[j, i] = k_j . q_i
    product(keys, 0, dim, 1, scratch.queries, 0, size, scores, 0, size, count, rows, dim, False, FULL)
    if mask.size > 0 or cut:
        _hide(scores, size, count, rows, last, mask, mask_at)
    if _exponentials(scratch, count, rows):
        for i in range(rows):
            x, shrunk = window(num, i * row, row), scratch.decay[i]
            for c in range(row):
                x[c] *= shrunk


@compiled
def online_softmax(q, k, v, mask, scale, causal, reads, out, lse, block, key_block, low, high):
    """Answer blocks low to high of `block` queries, the last ones of each read first: they have most to do.

    q (heads, n, D), k (heads, L, D) and v (heads, L, e); out and lse are flat. reads (R, 5): head of q, of k, of v, of
    the mask, of out.
    """
    (_, n, dim), (_, length, e) = q.shape, v.shape
    q, k, v = whole(q), whole(k), whole(v)
    scratch = _scratch(dim, e, block, key_block, q)
    num, peaks, lows, den, row_e = scratch.num, scratch.peaks, scratch.lows, scratch.den, scratch.row
    factor = q.dtype.type(scale)
    coarse = scale != 0 and not np.finfo(q.dtype).tiny <= abs(factor) < np.inf
    blocks = (n + block - 1) // block
    for b in range(low, high):
        r, first = b // blocks, (blocks - 1 - b % blocks) * block
        rows = min(block, n - first)
        at_q, at_k, at_v = reads[r, 0] * n + first, reads[r, 1] * length, reads[r, 2] * length
        at_m, at_out = reads[r, 3] * length, reads[r, 4] * n + first
        position = first + length - n  # the last key that row 0 of the block sees
        stop = min(length, position + rows) if causal else length
        _begin(scratch, q, at_q * dim, rows, dim, factor)
        for at in range(0, stop, key_block):
            count = min(key_block, stop - at)
            keys, values, step = window(k, (at_k + at) * dim, count * dim), window(v, (at_v + at) * e, count * e), e
            if mask.size > 0 or count % ROWS > 0 or e % lanes(q) > 0:
                keys, values, step = whole(scratch.keys), whole(scratch.values), row_e
                load_rows(k, (at_k + at) * dim, count, dim, mask, at_m + at, scratch.keys, dim)
                load_rows(v, (at_v + at) * e, count, e, mask, at_m + at, scratch.values, row_e)
            cut = causal and at + count - 1 > position
            last = position - at if causal else count
            _weights(scratch, keys, dim, rows, count, mask, at_m + at, last, cut)
            if cut and not finite(window(values, 0, (count - 1) * step + e)):
                _set_aside(
                    values, step, count, e, scratch.scores, scratch.size, rows, last, num, row_e, scratch.values, row_e
                )
                values, step = whole(scratch.values), row_e
            product(scratch.scores, 0, 1, scratch.size, values, 0, step, num, 0, row_e, rows, e, count, True, FULL)
        write(num, row_e, rows, e, den, out, at_out * e)
        for i in range(rows):
            lse[at_out + i] = peaks[i] + math.log(den[i]) if den[i] != 0 else -np.inf
            if coarse or lows[i] == -np.inf or not (den[i] > 0 and finite(window(num, i * row_e, e))):
                seen = min(length, position + i + 1) if causal else length
                answer_far_row(
                    window(q, (at_q + i) * dim, dim),
                    window(k, at_k * dim, length * dim),
                    window(v, at_v * e, length * e),
                    e, mask, at_m, seen, scale, window(out, (at_out + i) * e, e), lse, at_out + i,
                )  # fmt: skip
