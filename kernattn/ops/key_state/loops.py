"""The recurrence of linear attention, chunk by chunk: for causal attention, and for summaries of keys."""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.memory import aligned, copy, odd_row, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, TALL, lanes
from kernattn.ops._numba.far.lifted_keys import USUAL, count_alike_rows, lift_of, rise_of
from kernattn.ops._numba.far.negligible import negligible_size, raise_queries
from kernattn.ops._numba.tiles.chunk import (
    column_sums,
    key_values,
    key_weights,
    load_rows,
    project_keys,
    query_features,
)
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.moderate import moderate_keys
from kernattn.ops._numba.tiles.outputs import normalisers, write_rows
from kernattn.ops._numba.tiles.products import FULL, LOWER, UPPER, product
from kernattn.ops._numba.tiles.rows import as_read, fetch_rows, room_of, wide_rows
from kernattn.ops._numba.tiles.stream import until_line
from kernattn.ops._numba.tiles.sums import Sums, clear, lift_sums, load_sums, rescale, store_sums

PIECE = 2 * TALL if TALL > ROWS else ROWS
"""Rows of a product, between which part of the next chunk is fetched: all of it at once would have to be waited for."""

K, V, MASK, BEFORE, FIRST, END = range(6)
RUN_COLUMNS = 6
"""Columns of runs: heads of k, of v, of the mask, and of what came before or -1; first token, one after the last."""

QUERY, OUT = range(2)
"""Of reads: heads of q and of out."""


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
def count_rows_of_sequence(fresh, at, rows):
    """Return how many of the rows come before the next sequence begins."""
    for j in range(1, rows):
        if fresh[at + j]:
            return j
    return rows


class Chunk(NamedTuple):
    """Where a chunk of tokens meets the sums; made in compiled code, where it costs nothing."""

    keys: Any  # (size, row_k), their features in units of the sums
    queries: Any  # (M, size), their weights
    values: Any  # (size, row_e), where they cannot be read in place
    products: Any  # (size, size), phi(k_j) . phi(q_i)
    num: Any  # (size, row_e), what queries read
    den: Any  # (size,), their normalisers
    inside: Any  # (size,), the part of them that comes from this chunk
    base: Any  # units that the sums get with this chunk; `reached` the highest of a key so far
    reached: Any
    totals: Any  # (M,), the sums of the keys' features
    scales: Any  # (size,), log scales of keys
    highest: Any  # (size,), units of queries, and what was taken off the logs of their own
    own: Any
    packed: Any  # rows on their way into a product
    spare: Any
    wide_q: Any  # rows as floats, where they have 16 bits
    wide_k: Any
    wide_v: Any
    wide_out: Any
    size: Any
    row_k: Any
    row_e: Any


@inner
def room_for(phi_q, phi_k, e, tokens, sides, out, like):
    """Return room for a chunk of so many tokens."""
    wide = tile_rows(max(phi_k.features, phi_q.frequencies, phi_k.frequencies), like)
    size, row_e = tile_rows(tokens, like), odd_row(e, like)
    # an odd number of lines: rows fall into different cache sets
    row_k = pad(max(phi_k.features, phi_k.frequencies), lanes(like)) + lanes(like)
    return Chunk(
        aligned(size * row_k, like), aligned(wide * size, like), aligned(size * row_e, like),
        aligned(size * size, like), aligned(size * row_e, like), aligned(size, like), aligned(size, like),
        aligned(wide, like), aligned(wide, like), aligned(wide, like),
        aligned(size, like), aligned(size, like), aligned(size, like),
        aligned(size * max(phi_q.dim, phi_k.dim), like), aligned(2 * wide, like),
        aligned(room_of(size * phi_q.dim, sides[0]), like), aligned(room_of(size * phi_k.dim, sides[1]), like),
        aligned(room_of(size * e, sides[2]), like), aligned(room_of(size * e, out), like), size, row_k, row_e,
    )  # fmt: skip


@phase
def key_features(phi, k, at, rows, mask, mask_at, given, given_at, above, lifted, sums, chunk, made):
    """Write the features of keys, and the units that the sums get; return how many of the rows may share these.

    Projections may be `made`, as for `project_keys`.
    """
    zero, keys, row, scales = k.dtype.type(0), chunk.keys, chunk.row_k, chunk.scales
    alone = lifted == 0 and mask.size == 0 and given.size == 0 and not sums.reached[0] > 0
    if alone and moderate_keys(phi, k, at, rows, keys, row, scales, chunk.totals):
        chunk.base[0] = sums.reached[0] = zero
        return rows
    project_keys(phi, k, at, rows, mask, mask_at, given, given_at, chunk.packed, keys, row, scales, made)
    if phi.per_feature:
        rows = key_weights(
            phi, rows, keys, row, scales, sums.reached, above, lifted, chunk.base, chunk.reached, chunk.totals
        )
        for a in range(phi.features):
            sums.reached[a] = chunk.reached[a]
        return rows
    rows, chunk.base[0], sums.reached[0] = key_values(
        phi, k, at, rows, keys, row, scales, sums.reached[0], above, lifted, chunk.spare, chunk.totals
    )
    return rows


@phase
def _multiply(chunk, rows, features, z, all_seen, positive):
    """Write products of keys and queries, for j <= i or for all; add up normalisers, and raise what is too low."""
    keys, queries, row, size = chunk.keys, chunk.queries, chunk.row_k, chunk.size
    for again in range(2):
        shape = FULL if all_seen else UPPER
        product(keys, 0, row, 1, queries, 0, size, chunk.products, 0, size, rows, rows, features, False, shape)
        if all_seen:
            column_sums(chunk.products, rows, size, rows, chunk.inside)
        else:
            _cut_triangle(chunk.products, rows, size, chunk.inside)
        if again > 0 or not positive or not raise_queries(
            queries, size, rows, features, z, keys, row, chunk.scales, all_seen, chunk.den, chunk.inside, chunk.highest
        ):  # fmt: skip
            break
    for i in range(rows):
        chunk.den[i] += chunk.inside[i]


@compiled
def recur(
    phi_q, phi_k, e, tokens, masks, before, runs, reads, n, answers, after, chunk, low, high
):  # fmt: skip
    """Take runs low to high, each of them tokens of one head that follow each other.

    runs (R, RUN_COLUMNS): head of k, of v, of the mask, of what came before or -1; first token, and the one after the
    last. reads (R, G, 2) are the heads of q that look at it, and of out. Everything is flat: tokens are q, k, v and the
    log scales of q and k that are given; masks that of the keys, and where sequences begin; before and after (s, z,
    peak); answers out, and unless these are empty peak and z of every normaliser.

    A chunk stands in the unit of what its first row sees. Keys may rise above it, by fewer octaves beside large values,
    before the chunk ends early.

    Where no sums are wanted after them, queries see all tokens of their run, which are to be one chunk. Return whether
    no such chunk had to end early.
    """
    phi_q, phi_k = unpack(phi_q), unpack(phi_k)
    features, groups = phi_k.features, reads.shape[1]
    rows_q, rows_k, rows_v, given_q, given_k = tokens
    rows_q, rows_k, rows_v = as_read(rows_q), as_read(rows_k), as_read(rows_v)
    v = rows_v[0]
    given_q, given_k = whole(given_q), whole(given_k)
    (mask, fresh), (out, peaks, z) = masks, answers
    tile, all_seen = room_for(phi_q, phi_k, e, chunk, tokens, out, v), after[0].size == 0
    wide, size, row_e, num = tile.totals.size, tile.size, tile.row_e, tile.num
    tops = features if phi_k.per_feature else 1
    sums = Sums(
        aligned(0 if all_seen else wide * row_e, v), aligned(wide, v), aligned(wide, v), aligned(wide, v),
        features, e, row_e, tops,
    )  # fmt: skip
    positive = phi_q.positive and phi_k.positive
    zero, least = v.dtype.type(0), negligible_size(v) if phi_k.positive else v.dtype.type(-np.inf)
    unmade = window(v, 0, 0), 0
    for r in range(low, high):
        head_k, head_v, head_m = runs[r, K], runs[r, V], runs[r, MASK]
        start, t, end = runs[r, BEFORE], runs[r, FIRST], runs[r, END]
        if start >= 0:
            load_sums(sums, before, start)
        else:
            clear(sums)
        seen, size_v, lifted = start >= 0, USUAL, zero
        while t < end:
            # how many tokens are a chunk: of one sequence, and with values of one size
            at_k, at_v, at_m, rows = head_k * n + t, head_v * n + t, head_m * n + t, min(chunk, end - t)
            if fresh.size > 0:
                if fresh[at_m]:
                    clear(sums)
                    seen, size_v, lifted = False, USUAL, zero
                rows = count_rows_of_sequence(fresh, at_m, rows)
            v, from_v = wide_rows(rows_v, at_v * e, rows * e, tile.wide_v)
            k, from_k = wide_rows(rows_k, at_k * phi_k.dim, rows * phi_k.dim, tile.wide_k)
            rows, size_v = count_alike_rows(v, from_v, rows, e, mask, at_m, size_v)
            if lift_of(size_v, v) > lifted:
                lifted = lift_of(size_v, v)
                if seen:  # there may be no room for sums otherwise
                    lift_sums(sums, lifted)
            # features of keys, and the old sums in their units
            above = rise_of(size_v, v)
            rows = key_features(
                phi_k, k, from_k, rows, mask, at_m, given_k, at_k, above, lifted, sums, tile, unmade
            )  # fmt: skip
            if all_seen and rows < end - t:
                return False
            if seen:
                rescale(sums, tile.base, least)
            else:
                copy(tile.base, 0, tops, sums.units, 0)
            values, row_v = window(v, from_v, rows * e), e
            if mask.size > 0 or e % lanes(v) > 0 or until_line(values) > 0:  # vectors across two lines are slow
                values, row_v = window(tile.values, 0, tile.values.size), row_e
                load_rows(v, from_v, rows, e, mask, at_m, tile.values, row_e)
            # what queries read of the old sums, and of this chunk
            for g in range(groups):
                at_q, at_out = reads[r, g, QUERY] * n + t, reads[r, g, OUT] * n + t
                q, from_q = wide_rows(rows_q, at_q * phi_q.dim, rows * phi_q.dim, tile.wide_q)
                query_features(
                    phi_q, q, from_q, rows, sums.units, sums.z,
                    tile.packed, tile.queries, size, tile.highest, tile.own, tile.den, tile.spare, unmade,
                )  # fmt: skip
                _multiply(tile, rows, features, sums.z, all_seen, positive)
                for i in range(0, rows, PIECE):
                    some, to = min(PIECE, rows - i), i * row_e
                    fetch_rows(rows_q, (at_q + rows + i) * phi_q.dim, some * phi_q.dim)
                    if seen:
                        product(
                            tile.queries, i, 1, size, sums.s, 0, row_e, num, to, row_e, some, e, features, False, FULL
                        )
                lower = FULL if all_seen else LOWER
                product(tile.products, 0, 1, size, values, 0, row_v, num, 0, row_e, rows, e, rows, seen, lower)
                write_rows(num, row_e, rows, e, tile.den, tile.wide_out, out, at_out * e)
                if peaks.size > 0:
                    unit = zero if phi_q.per_feature else sums.units[0]
                    normalisers(phi_q, tile.den, unit, tile.highest, tile.own, rows, given_q, at_q, peaks, z, at_out)
            if all_seen:
                break
            # the chunk comes to the sums, while the next one is fetched
            for a in range(features):
                sums.z[a] += tile.totals[a]
            each_k, each_v = rows * phi_k.dim // features, rows * e // features
            for i in range(0, features, PIECE):
                some, to = min(PIECE, features - i), i * row_e
                fetch_rows(rows_k, (at_k + rows) * phi_k.dim + each_k * i, each_k * some)
                fetch_rows(rows_v, (at_v + rows) * e + each_v * i, each_v * some)
                product(tile.keys, i, 1, tile.row_k, values, 0, row_v, sums.s, to, row_e, some, e, rows, seen, FULL)
            seen = True
            t += rows
        if not all_seen:
            store_sums(sums, after, r, least)
    return True
