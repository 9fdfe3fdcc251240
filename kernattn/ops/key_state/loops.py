"""The recurrence of linear attention, chunk by chunk: for causal attention, and for summaries of keys."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, TALL, lanes
from kernattn.ops._numba.far.lifted_keys import USUAL, alike_rows, lift_of, rise_of
from kernattn.ops._numba.far.negligible import faint, raise_queries
from kernattn.ops._numba.tiles.chunk import (
    column_sums,
    key_values,
    key_weights,
    load_rows,
    project_keys,
    query_features,
)
from kernattn.ops._numba.tiles.maps import unpacked
from kernattn.ops._numba.tiles.moderate import moderate_keys
from kernattn.ops._numba.tiles.outputs import normalisers, write
from kernattn.ops._numba.tiles.products import FULL, LOWER, UPPER, product
from kernattn.ops._numba.tiles.stream import fetch, until_line
from kernattn.ops._numba.tiles.sums import Sums, clear, lift_sums, load_sums, rescale, store_sums

PIECE = 2 * TALL if TALL > ROWS else ROWS
"""Rows of a product, between which part of the next chunk is fetched: all of it at once would have to be waited for."""


@inner
def _cut_triangle(products, rows, row, inside):
    """Put zeros where j > i, as far as blocks reach, and set `inside` to the sums of the columns."""
    for i in range(rows):
        inside[i] = 0
    for j in range(rows):
        first = max(0, j + 1 - TALL) // lanes(products) * lanes(products)
        x, total = window(products, j * row + first, rows - first), window(inside, first, rows - first)
        for i in range(j - first):
            x[i] = 0
        for i in range(rows - first):
            total[i] += x[i]


@inner
def _of_one_sequence(fresh, at, rows):
    """Return how many rows come before the next sequence begins."""
    for j in range(1, rows):
        if fresh[at + j]:
            return j
    return rows


@compiled
def recur(
    phi_q, phi_k, e, tokens, masks, before, runs, reads, n, answers, after, chunk, low, high
):  # fmt: skip
    """Take runs low to high, each of them tokens of one head that follow each other.

    runs (R, 6): head of k, of v, of the mask, of what came before or -1; first token, and the one after the last.

    reads (R, G, 2) are the heads of q that look at it, and of out. Everything is flat: tokens are q, k, v and the
    log scales of q and k that are given; masks that of the keys, and where sequences begin; before and after (s, z,
    peak); answers out, and unless these are empty peak and z of every normaliser.

    A chunk stands in the unit of what its first row sees. Keys may rise above it, by fewer octaves beside large values,
    before the chunk ends early.

    Where no sums are wanted after them, queries see all tokens of their run, which are to be one chunk. Return whether
    no such chunk had to end early.
    """
    phi_q, phi_k = unpacked(phi_q), unpacked(phi_k)
    features = phi_k.features
    q, k, v = whole(tokens[0]), whole(tokens[1]), whole(tokens[2])
    given_q, given_k = whole(tokens[3]), whole(tokens[4])
    (mask, fresh), (out, peaks, z) = masks, answers
    row_e = tile_rows(e, v)
    # an odd number of lines: rows fall into different cache sets
    row_k = pad(max(features, phi_k.frequencies), lanes(v)) + lanes(v)
    size = tile_rows(chunk, v)
    all_seen = after[0].size == 0
    wide = tile_rows(max(features, phi_q.frequencies, phi_k.frequencies), v)
    groups = reads.shape[1]
    tops = features if phi_k.per_feature else 1
    sums = Sums(
        aligned(0 if all_seen else wide * row_e, v), aligned(wide, v), aligned(wide, v), aligned(wide, v),
        features, e, row_e, tops,
    )  # fmt: skip
    base, reached, totals, spare = aligned(wide, v), aligned(wide, v), aligned(wide, v), aligned(2 * wide, v)
    scales, highest, own = aligned(size, v), aligned(size, v), aligned(size, v)
    den, inside = aligned(size, v), aligned(size, v)
    keys = aligned(size * row_k, v)
    queries = aligned(wide * size, v)
    packed = aligned(size * max(phi_q.dim, phi_k.dim), v)
    packed_v = aligned(size * row_e, v)
    products = aligned(size * size, v)
    num = aligned(size * row_e, v)
    positive = phi_q.positive and phi_k.positive
    zero, least = v.dtype.type(0), faint(v) if phi_k.positive else v.dtype.type(-np.inf)
    for r in range(low, high):
        head, head_v, head_m = runs[r, 0], runs[r, 1], runs[r, 2]
        start, t, end = runs[r, 3], runs[r, 4], runs[r, 5]
        if start >= 0:
            load_sums(sums, before, start)
        else:
            clear(sums)
        seen, size_v, lifted = start >= 0, USUAL, zero
        while t < end:
            at_k, at_v, at_m, rows = head * n + t, head_v * n + t, head_m * n + t, min(chunk, end - t)
            if fresh.size > 0:
                if fresh[at_m]:
                    clear(sums)
                    seen, size_v, lifted = False, USUAL, zero
                rows = _of_one_sequence(fresh, at_m, rows)
            rows, size_v = alike_rows(v, at_v * e, rows, e, mask, at_m, size_v)
            if lift_of(size_v, v) > lifted:
                lifted = lift_of(size_v, v)
                if seen:  # there may be no room for sums otherwise
                    lift_sums(sums, lifted)
            alone = lifted == 0 and mask.size == 0 and given_k.size == 0 and not sums.reached[0] > 0
            if alone and moderate_keys(phi_k, k, at_k * phi_k.dim, rows, keys, row_k, scales, totals):
                base[0] = sums.reached[0] = zero
            else:
                project_keys(phi_k, k, at_k * phi_k.dim, rows, mask, at_m, given_k, at_k, packed, keys, row_k, scales)
                above = rise_of(size_v, v)
                if phi_k.per_feature:
                    rows = key_weights(
                        phi_k, rows, keys, row_k, scales, sums.reached, above, lifted, base, reached, totals
                    )
                    for a in range(features):
                        sums.reached[a] = reached[a]
                else:
                    rows, base[0], sums.reached[0] = key_values(
                        phi_k, k, at_k * phi_k.dim, rows, keys, row_k, scales,
                        sums.reached[0], above, lifted, spare, totals,
                    )  # fmt: skip
            if all_seen and rows < end - t:
                return False
            if seen:
                rescale(sums, base, least)
            else:
                copy(base, 0, tops, sums.units, 0)
            values, row_v = window(v, at_v * e, rows * e), e
            if mask.size > 0 or e % lanes(v) > 0 or until_line(values) > 0:  # vectors across two lines are slow
                values, row_v = window(packed_v, 0, packed_v.size), row_e
                load_rows(v, at_v * e, rows, e, mask, at_m, packed_v, row_e)
            for g in range(groups):
                query_features(
                    phi_q, q, (reads[r, g, 0] * n + t) * phi_q.dim, rows, sums.units, sums.z,
                    packed, queries, size, highest, own, den, spare,
                )  # fmt: skip
                for again in range(2):  # products[j, i] = phi(k_j) . phi(q_i) for j <= i, or for all
                    upper = FULL if all_seen else UPPER
                    product(keys, 0, row_k, 1, queries, 0, size, products, 0, size, rows, rows, features, False, upper)
                    if all_seen:
                        column_sums(products, rows, size, rows, inside)
                    else:
                        _cut_triangle(products, rows, size, inside)
                    if again > 0 or not positive or not raise_queries(
                        queries, size, rows, features, sums.z, keys, row_k, scales, all_seen, den, inside, highest
                    ):  # fmt: skip
                        break
                for i in range(rows):
                    den[i] += inside[i]
                for i in range(0, rows, PIECE):
                    some, to = min(PIECE, rows - i), i * row_e
                    fetch(q, (reads[r, g, 0] * n + t + rows + i) * phi_q.dim, some * phi_q.dim)
                    if seen:
                        product(queries, i, 1, size, sums.s, 0, row_e, num, to, row_e, some, e, features, False, FULL)
                lower = FULL if all_seen else LOWER
                product(products, 0, 1, size, values, 0, row_v, num, 0, row_e, rows, e, rows, seen, lower)
                write(num, row_e, rows, e, den, out, (reads[r, g, 1] * n + t) * e)
                if peaks.size > 0:
                    unit = zero if phi_q.per_feature else sums.units[0]
                    normalisers(
                        phi_q, den, unit, highest, own, rows, given_q, reads[r, g, 0] * n + t,
                        peaks, z, reads[r, g, 1] * n + t,
                    )  # fmt: skip
            if all_seen:
                break
            for a in range(features):
                sums.z[a] += totals[a]
            each_k, each_v = rows * phi_k.dim // features, rows * e // features
            for i in range(0, features, PIECE):
                some, to = min(PIECE, features - i), i * row_e
                fetch(k, (at_k + rows) * phi_k.dim + each_k * i, each_k * some)
                fetch(v, (at_v + rows) * e + each_v * i, each_v * some)
                product(keys, i, 1, row_k, values, 0, row_v, sums.s, to, row_e, some, e, rows, seen, FULL)
            seen = True
            t += rows
        if not all_seen:
            store_sums(sums, after, r, least)
    return True
