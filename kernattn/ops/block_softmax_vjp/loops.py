"""The way back through exact attention, a tile of keys against every block of queries that sees any of it.

Scores and their cotangents stay in cache: what a tile of keys is told is summed there, and what it tells a block of
queries is added to theirs.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import bits_of, load, store, where
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.products import FULL, product, transpose
from kernattn.ops._numba.tiles.rows import as_read, read_row, read_rows
from kernattn.ops.block_softmax.pair_loops import are_pairs, read_pairs, row_of_pairs

TILES, VISITS, STATES, GROUP, SPLITS = range(5)
HEADER = 5
"""What a table begins with: how many tiles, visits and states follow, reads of a state, and shares of the queries."""

TILE, VISIT, STATE, READ = 4, 3, 3, 2
"""How many numbers each of these has."""


class Scratch(NamedTuple):
    """Where a tile of keys meets a block of queries; made in compiled code, where it costs nothing."""

    keys: Any  # (size, row_d), as they are
    keys_t: Any  # (D, size)
    values: Any  # (size, row_e), while they are turned
    values_t: Any  # (e, size)
    queries: Any  # (size, row_d), times the scale
    g: Any  # (size, row_e)
    weights: Any  # (size, size), of query i and key j; first the scores
    slopes: Any  # the cotangents of the scores; first those of the weights
    dk: Any  # (size, row_d), the cotangents of the tile of keys so far
    dv: Any  # (size, row_e)
    db: Any  # (size,)
    dq: Any  # (size, row_d), those of a block of queries
    pairs: Any  # (size, size), what is added to the scores, where there is such a bias
    size: Any
    row_d: Any
    row_e: Any


@inner
def _scratch(dim, e, block, paired, like):
    """Return room for blocks of so many keys or queries."""
    size, row_d, row_e = tile_rows(block, like), tile_rows(dim, like), tile_rows(e, like)
    return Scratch(
        aligned(size * row_d, like), aligned(dim * size, like),
        aligned(size * row_e, like), aligned(e * size, like),
        aligned(size * row_d, like), aligned(size * row_e, like),
        aligned(size * size, like), aligned(size * size, like),
        aligned(size * row_d, like), aligned(size * row_e, like), aligned(size, like), aligned(size * row_d, like),
        aligned(size * size if paired else 0, like),
        size, row_d, row_e,
    )  # fmt: skip


@inner
def _clear(tile):
    """Write zeros."""
    x = whole(tile)
    for i in range(x.size):
        x[i] = 0


@inner
def _token(tokens, i):
    """Return the row of query i of a part."""
    return tokens[i] if tokens.size > 0 else i


@inner
def _load_queries(x, head, tokens, first, rows, width, factor, shifts, shifts_head, tile, row):
    """Copy rows of x times a factor to a tile; zeros for those that have no gradient, whatever stands there."""
    for i in range(rows):
        token = _token(tokens, first + i)
        target = window(tile, i * row, width)
        if shifts[shifts_head + token] == math.inf:
            for c in range(width):
                target[c] = 0
            continue
        read_row(x, (head + token) * width, width, tile, i * row)
        if factor != 1:
            for c in range(width):
                target[c] *= factor


@inner_exact
def _slopes(scratch, tokens, first, rows, count, shifts, dots, at):
    """Turn scores into weights e^(score - shift), and cotangents of weights into those of scores."""
    weights, slopes, size = scratch.weights, scratch.slopes, scratch.size
    zero, width = weights.dtype.type(0), lanes(weights)
    for i in range(rows):
        token = at + _token(tokens, first + i)
        shift, dot = shifts[token], dots[token]
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
def _add_bias(scratch, rows, count, bias, at):
    """Add to the scores of a key what is added to all of its."""
    for i in range(rows):
        x = window(scratch.weights, i * scratch.size, count)
        for j in range(count):
            x[j] += bias[at + j]


@inner
def _load_pairs(scratch, tokens, first, rows, pairs, read, n, at, count):
    """Copy what is added to scores to a tile."""
    for i in range(rows):
        at_row = row_of_pairs(pairs, read, n, _token(tokens, first + i))
        read_pairs(pairs, at_row, at, count, scratch.pairs, i * scratch.size)


@inner
def _add_pairs(scratch, rows, count):
    """Add to each score what is added to it alone."""
    scores, width = scratch.weights, lanes(scratch.weights)
    for i in range(rows):
        for j in range(i * scratch.size, i * scratch.size + count, width):
            store(load(scores, j) + load(scratch.pairs, j), scores, j)


@inner
def _tell_pairs(scratch, tokens, first, rows, pairs, read, n, at, count, words, mask, at_m, dpairs):
    """Add the cotangents of scores to those of what was added to them, where a query sees a key."""
    one, (_, _, keys, _) = np.uint64(1), pairs
    whole_tile = words.size == 0 and mask.size == 0 and keys.size == 0
    for i in range(rows):
        at_row, slopes = row_of_pairs(pairs, read, n, _token(tokens, first + i)), i * scratch.size
        if whole_tile:
            target, source = window(dpairs, at_row + at, count), window(scratch.slopes, slopes, count)
            for j in range(count):
                target[j] += source[j]
            continue
        for j in range(count):
            if (words.size == 0 or (words[i] >> np.uint64(j)) & one) and (mask.size == 0 or mask[at_m + j]):
                dpairs[at_row + (keys[at + j] if keys.size > 0 else at + j)] += scratch.slopes[slopes + j]


@inner
def _hide(scratch, rows, count, words):
    """Hide key j from query i where bit j of word i is 0."""
    scores, width = scratch.weights, lanes(scratch.weights)
    for i in range(rows):
        word = words[i]
        for j in range(0, count, width):
            if ~word >> np.uint64(j) == 0:  # it sees all others
                break
            at = i * scratch.size + j
            store(where(bits_of(word, j, scores), load(scores, at), -math.inf), scores, at)


@inner
def _pair_by_pair(scratch, tokens, first, rows, count, dim, e, words, bias, at_m, shifts, dots, at):
    """Add what `_visit` adds where something is not finite: query i reads nothing of keys whose bit of word i is 0."""
    s, one, paired = scratch, np.uint64(1), scratch.pairs.size > 0
    for i in range(rows):
        token = at + _token(tokens, first + i)
        if paired:
            for j in range(count):
                s.slopes[i * s.size + j] = 0
        if shifts[token] == math.inf:
            continue
        q, g = window(s.queries, i * s.row_d, dim), window(s.g, i * s.row_e, e)
        dq = window(s.dq, i * s.row_d, dim)
        for j in range(count):
            if words.size > 0 and (words[i] >> np.uint64(j)) & one == 0:
                continue
            if paired and s.pairs[i * s.size + j] == -math.inf:
                continue
            k = window(s.keys, j * s.row_d, dim)
            dk, dv = window(s.dk, j * s.row_d, dim), window(s.dv, j * s.row_e, e)
            score = slope = s.queries.dtype.type(0)
            for c in range(dim):
                score += q[c] * k[c]
            for c in range(e):
                slope += g[c] * s.values_t[c * s.size + j]
            if bias.size > 0:
                score += bias[at_m + j]
            if paired:
                score += s.pairs[i * s.size + j]
            score -= shifts[token]
            p = decayed(score if score < 0 or math.isnan(score) else s.queries.dtype.type(0))
            s.slopes[i * s.size + j] = slope = p * (slope - dots[token])
            s.db[j] += slope
            for c in range(e):
                dv[c] += p * g[c]
            for c in range(dim):
                dk[c] += slope * q[c]
                dq[c] += slope * k[c]


@inner
def _finite(scratch, tokens, first, rows, dots, at):
    """Are the cotangents that keys and queries have of each other finite?"""
    s = scratch
    for i in range(rows):
        if not math.isfinite(dots[at + _token(tokens, first + i)]):
            return False
    return finite(whole(s.keys)) and finite(whole(s.values_t)) and finite(whole(s.queries)) and finite(whole(s.g))


@inner
def _visit(scratch, tokens, first, rows, count, dim, e, words, bias, at_m, shifts, dots, at):
    """Add the cotangents of keys that `rows` queries see, and write those of the queries; without words all see all."""
    s = scratch
    if (words.size > 0 or s.pairs.size > 0) and not _finite(s, tokens, first, rows, dots, at):
        _clear(s.dq)
        _pair_by_pair(s, tokens, first, rows, count, dim, e, words, bias, at_m, shifts, dots, at)
        return
    product(s.queries, 0, s.row_d, 1, s.keys_t, 0, s.size, s.weights, 0, s.size, rows, count, dim, False, FULL)
    product(s.g, 0, s.row_e, 1, s.values_t, 0, s.size, s.slopes, 0, s.size, rows, count, e, False, FULL)
    if bias.size > 0:
        _add_bias(s, rows, count, bias, at_m)
    if s.pairs.size > 0:
        _add_pairs(s, rows, count)
    if words.size > 0:
        _hide(s, rows, count, words)
    _slopes(s, tokens, first, rows, count, shifts, dots, at)
    product(s.weights, 0, 1, s.size, s.g, 0, s.row_e, s.dv, 0, s.row_e, count, e, rows, True, FULL)
    product(s.slopes, 0, 1, s.size, s.queries, 0, s.row_d, s.dk, 0, s.row_d, count, dim, rows, True, FULL)
    product(s.slopes, 0, s.size, 1, s.keys, 0, s.row_d, s.dq, 0, s.row_d, rows, dim, count, False, FULL)
    if bias.size > 0:
        for i in range(rows):
            x = window(s.slopes, i * s.size, count)
            for j in range(count):
                s.db[j] += x[j]


@inner
def _add_to_queries(scratch, tokens, first, rows, dim, factor, q, at_q, shifts, dq, at):
    """Add the cotangents of queries times the factor to dq; return their product with the queries."""
    total = 0.0
    for i in range(rows):
        token = _token(tokens, first + i)
        if shifts[at + token] != math.inf:
            source, target = window(scratch.dq, i * scratch.row_d, dim), window(dq, (at + token) * dim, dim)
            dot = dq.dtype.type(0)
            x = window(scratch.queries, i * scratch.row_d, dim)  # once more, without the factor
            read_row(q, (at_q + token) * dim, dim, x, 0)
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


@inner
def _tables(table):
    """Return the tiles, visits, states, reads and queries of a table."""
    tiles = window(table, HEADER, TILE * table[TILES])
    visits = window(table, HEADER + tiles.size, VISIT * table[VISITS])
    states = window(table, HEADER + tiles.size + visits.size, STATE * table[STATES])
    before = HEADER + tiles.size + visits.size + states.size
    reads = window(table, before, READ * table[STATES] * table[GROUP])
    rest = before + reads.size
    return tiles, visits, states, reads, window(table, rest, table.size - rest)


@compiled
def pull_blocks(
    q, k, v, g, mask, bias, pairs, scale, table, words, shifts, dots, dq, dk, dv, db, dpairs, ds, sizes, phase,
    low, high,
):  # fmt: skip
    """Add what pieces low to high of a part tell: of state b the s-th share of its tiles, and that of the queries.

    q (heads, n, D), k (heads, l, D), v (heads, l, e) and g (heads, n, e), keys in the order of the part, are (floats,
    bits, kind); sizes are (n, D, l, e). All is flat. The table holds, one after the other: its header; tiles of keys,
    visits of queries; states, the heads of k, of v, and of dk, dv, db, mask and bias; reads, the heads of q, and of g
    and dq; and the rows of the queries, none where they stand as they are. Words (W, SIDE) are those of
    `kernattn._plans.transposed`. The share of the queries is s + phase, so that no two pieces of a phase write to the
    same rows. ds has a number for each piece. What is added to `pairs` is as `pair_loops` of the op has it, for the
    reads of the states; no two states add to one of its cotangents.
    """
    (n, dim, length, e), side = sizes, words.shape[1]
    q, k, v, g, words = as_read(q), as_read(k), as_read(v), as_read(g), whole(words)
    tiles, visits, states, reads, tokens = _tables(table)
    count_tiles, group, splits = table[TILES], table[GROUP], table[SPLITS]
    factor, one = dq.dtype.type(scale), dq.dtype.type(1)
    queries = tokens.size if tokens.size > 0 else n
    block = min(side, max(queries, length))
    paired = are_pairs(pairs)
    scratch = _scratch(dim, e, block, paired, dq)
    size, row_d, row_e = scratch.size, scratch.row_d, scratch.row_e
    for piece in range(low, high):
        b, s = piece // splits, piece % splits
        t, total, state = (s + phase) % splits, 0.0, STATE * b
        since, until = queries * t // splits, queries * (t + 1) // splits
        for tile in range(TILE * (count_tiles * s // splits), TILE * (count_tiles * (s + 1) // splits), TILE):
            at, count, begin, end = tiles[tile], tiles[tile + 1], tiles[tile + 2], tiles[tile + 3]
            if begin == end or visits[VISIT * begin] >= until or visits[VISIT * end - 2] <= since:
                continue
            at_k, at_v = states[state] * length + at, states[state + 1] * length + at
            at_m = states[state + 2] * length + at
            # the tile of keys
            read_rows(k, at_k * dim, count, dim, mask, at_m, scratch.keys, row_d)
            read_rows(v, at_v * e, count, e, mask, at_m, scratch.values, row_e)
            transpose(scratch.keys, 0, row_d, count, dim, scratch.keys_t, 0, size)
            transpose(scratch.values, 0, row_e, count, e, scratch.values_t, 0, size)
            _clear(scratch.dk)
            _clear(scratch.dv)
            _clear(scratch.db)
            # every block of queries of this share that sees any of it
            for read in range(READ * group * b, READ * group * (b + 1), READ):
                at_q, at_g = reads[read] * n, reads[read + 1] * n
                for x in range(VISIT * begin, VISIT * end, VISIT):
                    start, number = visits[x], visits[x + 2]
                    for first in range(max(start, since), min(visits[x + 1], until), block):
                        rows = min(block, min(visits[x + 1], until) - first)
                        seen = window(words, number * side + first - start, rows if number >= 0 else 0)
                        _load_queries(
                            q, at_q, tokens, first, rows, dim, factor, shifts, at_g, scratch.queries, row_d
                        )  # fmt: skip
                        _load_queries(g, at_g, tokens, first, rows, e, one, shifts, at_g, scratch.g, row_e)
                        if paired:
                            _load_pairs(scratch, tokens, first, rows, pairs, read // READ, n, at, count)
                        _visit(scratch, tokens, first, rows, count, dim, e, seen, bias, at_m, shifts, dots, at_g)
                        if paired:
                            _tell_pairs(
                                scratch, tokens, first, rows, pairs, read // READ, n, at, count, seen, mask, at_m,
                                dpairs,
                            )  # fmt: skip
                        total += _add_to_queries(scratch, tokens, first, rows, dim, factor, q, at_q, shifts, dq, at_g)
            # the cotangents that it has of them
            _add_rows(scratch.dk, row_d, count, dim, mask, at_m, dk, at_m * dim)
            _add_rows(scratch.dv, row_e, count, e, mask, at_m, dv, at_m * e)
            if bias.size > 0:
                _add_rows(scratch.db, 1, count, 1, mask, at_m, db, at_m)
        ds[piece] += total
