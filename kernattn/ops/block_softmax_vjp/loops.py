"""The way back through exact attention, a block of keys against every block of queries that sees it.

Scores and their cotangents stay in cache: what a block of keys is told is summed there, and what it tells a block of
queries is added to theirs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kernattn.ops._numba.compile import compiled, inner, inner_exact
from kernattn.ops._numba.elementary import decayed
from kernattn.ops._numba.held import finite
from kernattn.ops._numba.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.products import FULL, product, transpose
from kernattn.ops._numba.registers import lanes
from kernattn.ops._numba.tiles import load_rows
from kernattn.ops._numba.vectors import load, store, where

__all__ = ["Scratch", "pull_blocks"]


class Scratch(NamedTuple):
    """Where a block of keys meets a block of queries; made in compiled code, where it costs nothing."""

    keys: Any  # (size, row_d), as they are
    keys_t: Any  # (D, size)
    values: Any  # (size, row_e), while they are turned
    values_t: Any  # (e, size)
    queries: Any  # (size, row_d), times the scale
    g: Any  # (size, row_e)
    weights: Any  # (size, size), of query i and key j; first the scores
    slopes: Any  # the cotangents of the scores; first those of the weights
    dk: Any  # (size, row_d), what the block of keys was told so far
    dv: Any  # (size, row_e)
    dq: Any  # (size, row_d), what it tells a block of queries
    size: Any
    row_d: Any
    row_e: Any


@inner
def _scratch(dim, e, block, like):
    size, row_d, row_e = tile_rows(block, like), tile_rows(dim, like), tile_rows(e, like)
    return Scratch(
        aligned(size * row_d, like), aligned(dim * size, like),
        aligned(size * row_e, like), aligned(e * size, like),
        aligned(size * row_d, like), aligned(size * row_e, like),
        aligned(size * size, like), aligned(size * size, like),
        aligned(size * row_d, like), aligned(size * row_e, like), aligned(size * row_d, like),
        size, row_d, row_e,
    )  # fmt: skip


@inner
def _clear(tile):
    x = whole(tile)
    for i in range(x.size):
        x[i] = 0


@inner
def _load_queries(x, at, rows, width, factor, shifts, shifts_at, tile, row):
    """Copy rows of x times a factor to a tile; zeros for those that have no gradient, whatever stands there."""
    for i in range(rows):
        source, target = window(x, at + i * width, width), window(tile, i * row, width)
        if shifts[shifts_at + i] == math.inf:
            for c in range(width):
                target[c] = 0
        else:
            for c in range(width):
                target[c] = source[c] * factor


@inner_exact
def _slopes(scratch, rows, count, shifts, dots, at):
    """Turn scores into weights e^(score - shift), and cotangents of weights into those of scores."""
    weights, slopes, size = scratch.weights, scratch.slopes, scratch.size
    zero, width = weights.dtype.type(0), lanes(weights)
    for i in range(rows):
        shift, dot = shifts[at + i], dots[at + i]
        if shift == math.inf:  # whatever the scores are
            for j in range(i * size, (i + 1) * size):
                weights[j] = slopes[j] = 0
            continue
        for j in range(i * size, i * size + count, width):
            x = load(weights, j) - shift
            p = decayed(where(x > zero, zero, x))
            store(p, weights, j)
            store(p * (load(slopes, j) - dot), slopes, j)


@inner
def _hide(scratch, rows, count, last):
    """Hide keys j after last + i, the last of query i."""
    for i in range(rows):
        x = window(scratch.weights, i * scratch.size, count)
        for j in range(max(0, last + i + 1), count):
            x[j] = -math.inf


@inner
def _pair_by_pair(scratch, rows, count, dim, e, last, shifts, dots, at):
    """Do as `_visit` where something is not finite: query i reads nothing of keys after last + i."""
    s = scratch
    for i in range(rows):
        if shifts[at + i] == math.inf:
            continue
        q, g = window(s.queries, i * s.row_d, dim), window(s.g, i * s.row_e, e)
        dq = window(s.dq, i * s.row_d, dim)
        for j in range(min(count, last + i + 1)):
            k = window(s.keys, j * s.row_d, dim)
            dk, dv = window(s.dk, j * s.row_d, dim), window(s.dv, j * s.row_e, e)
            score = slope = s.queries.dtype.type(0)
            for c in range(dim):
                score += q[c] * k[c]
            for c in range(e):
                slope += g[c] * s.values_t[c * s.size + j]
            score -= shifts[at + i]
            p = decayed(score if score < 0 or math.isnan(score) else s.queries.dtype.type(0))
            slope = p * (slope - dots[at + i])
            for c in range(e):
                dv[c] += p * g[c]
            for c in range(dim):
                dk[c] += slope * q[c]
                dq[c] += slope * k[c]


@inner
def _finite(scratch):
    s = scratch
    return finite(whole(s.keys)) and finite(whole(s.values_t)) and finite(whole(s.queries)) and finite(whole(s.g))


@inner
def _visit(scratch, rows, count, dim, e, cut, last, shifts, dots, at):
    """Add what `rows` queries tell the keys, and write what these tell the queries."""
    s = scratch
    if cut and not _finite(s):
        _clear(s.dq)
        _pair_by_pair(s, rows, count, dim, e, last, shifts, dots, at)
        return
    product(s.queries, 0, s.row_d, 1, s.keys_t, 0, s.size, s.weights, 0, s.size, rows, count, dim, False, FULL)
    product(s.g, 0, s.row_e, 1, s.values_t, 0, s.size, s.slopes, 0, s.size, rows, count, e, False, FULL)
    if cut:
        _hide(s, rows, count, last)
    _slopes(s, rows, count, shifts, dots, at)
    product(s.weights, 0, 1, s.size, s.g, 0, s.row_e, s.dv, 0, s.row_e, count, e, rows, True, FULL)
    product(s.slopes, 0, 1, s.size, s.queries, 0, s.row_d, s.dk, 0, s.row_d, count, dim, rows, True, FULL)
    product(s.slopes, 0, s.size, 1, s.keys, 0, s.row_d, s.dq, 0, s.row_d, rows, dim, count, False, FULL)


@inner
def _add_to_queries(scratch, rows, dim, factor, q, at_q, shifts, dq, at):
    """Add what the queries were told times the factor to dq; return its product with the queries."""
    total = 0.0
    for i in range(rows):
        if shifts[at + i] != math.inf:
            source, target = window(scratch.dq, i * scratch.row_d, dim), window(dq, (at + i) * dim, dim)
            x, dot = window(q, (at_q + i) * dim, dim), q.dtype.type(0)
            for c in range(dim):
                target[c] += source[c] * factor
                dot += source[c] * x[c]
            total += dot
    return total


@inner
def _add_rows(tile, row, rows, width, mask, mask_at, out, at):
    """Add a tile to rows of out, but for masked ones."""
    for j in range(rows):
        if mask.size == 0 or mask[mask_at + j]:
            source, target = window(tile, j * row, width), window(out, at + j * width, width)
            for c in range(width):
                target[c] += source[c]


@compiled
def pull_blocks(
    q, k, v, g, mask, scale, causal, states, reads, shifts, dots, dq, dk, dv, ds, block, splits, phase, low, high
):  # fmt: skip
    """Add what pieces low to high tell: of state b the s-th part of its keys, and the part of the queries after it.

    q (heads, n, D), k (heads, l, D), v (heads, l, e) and g (heads, n, e); the rest is flat. states (B, 2): head of k,
    of v. reads (B, G, 2): head of q, of g. `splits` is the number of parts, and the part of the queries is s + phase,
    so that no two pieces of a phase write to the same rows. dq has a head for each of g, dk and dv one for each state,
    ds a number for each piece.
    """
    (_, n, dim), (_, length, e) = q.shape, v.shape
    q, k, v, g, factor, one = whole(q), whole(k), whole(v), whole(g), q.dtype.type(scale), q.dtype.type(1)
    scratch = _scratch(dim, e, block, q)
    key_blocks, query_blocks = (length + block - 1) // block, (n + block - 1) // block
    size, row_d, row_e = scratch.size, scratch.row_d, scratch.row_e
    for piece in range(low, high):
        b, s = piece // splits, piece % splits
        t, total = (s + phase) % splits, 0.0
        for at in range(key_blocks * s // splits * block, min(length, key_blocks * (s + 1) // splits * block), block):
            count, at_m = min(block, length - at), b * length + at
            at_k, at_v = states[b, 0] * length + at, states[b, 1] * length + at
            load_rows(k, at_k * dim, count, dim, mask, at_m, scratch.keys, row_d)
            load_rows(v, at_v * e, count, e, mask, at_m, scratch.values, row_e)
            transpose(scratch.keys, 0, row_d, count, dim, scratch.keys_t, 0, size)
            transpose(scratch.values, 0, row_e, count, e, scratch.values_t, 0, size)
            _clear(scratch.dk)
            _clear(scratch.dv)
            for r in range(reads.shape[1]):
                for first in range(
                    query_blocks * t // splits * block, min(n, query_blocks * (t + 1) // splits * block), block
                ):
                    rows, last = min(block, n - first), first + length - n - at if causal else count
                    if last + rows <= 0:
                        continue
                    at_q, at_g = reads[b, r, 0] * n + first, reads[b, r, 1] * n + first
                    _load_queries(q, at_q * dim, rows, dim, factor, shifts, at_g, scratch.queries, row_d)
                    _load_queries(g, at_g * e, rows, e, one, shifts, at_g, scratch.g, row_e)
                    _visit(scratch, rows, count, dim, e, last < count - 1, last, shifts, dots, at_g)
                    total += _add_to_queries(scratch, rows, dim, factor, q, at_q, shifts, dq, at_g)
            _add_rows(scratch.dk, row_d, count, dim, mask, at_m, dk, at_m * dim)
            _add_rows(scratch.dv, row_e, count, e, mask, at_m, dv, at_m * e)
        ds[piece] += total
