"""Exact attention on the matrix unit: scores and sums of a block of queries by tiles, the rest as in `loops`.

Scores stand keys by queries, and sums of values columns by queries, so that all that happens to a query happens in one
lane of vectors. Keys are cut where their numbers are multiples of BLOCK, wherever a visit begins: what it does not see
weighs 0. Queries, keys and values that tiles cannot hold count as zeros there; the rows that see one are told to the
caller, which answers them by the loops of floats. So no row's bits depend on another row.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import power_of_two
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, whole, window
from kernattn.ops._numba.codegen.registers import PAIRS, lanes
from kernattn.ops._numba.codegen.vectors import bits_of, load, some, store, where
from kernattn.ops._numba.matrix.instructions import configure, release, unit_room
from kernattn.ops._numba.matrix.parts import FAR, all_near, cut, is_far, pack_pairs, pack_row, pair, raised
from kernattn.ops._numba.matrix.products import BLOCK, GRAIN, multiply
from kernattn.ops._numba.tiles.outputs import write
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, wide_rows
from kernattn.ops._numba.tiles.stream import fetch_next
from kernattn.ops.block_softmax.loops import READ, TILE, TILES, VISIT, merge_row, tables

SIDE, QUERIES = 64, 32
"""Queries of a tile of the plan, and keys of a block; queries that are answered at once, so that scores, weights and
sums lie in the nearest cache beside the keys and values that pass."""

LOG2, LOG2E = np.float32(math.log(2)), np.float32(1 / math.log(2))

AHEAD = not PAIRS
"""Are keys and values asked for ahead? By pairs, products take so long that the machine fetches them alone."""

LEAD = 4.0
"""Powers of two by which scores may pass the peak before it rises: most often sums are then shrunk once."""

FAR_VALUE, FAINT_VALUE = 2.0**100, 2.0**-100
"""The same of values; below the second, tiles would take them, times a weight, for 0."""


@inner
def _load_block(rows, at, count, width, low, high, room, wide, far, far_at):
    """Write rows as floats to `room` (BLOCK, width), zeros for those that are far, and mark these."""
    source, from_row = wide_rows(rows, at * width, count * width, wide)
    least, most = room.dtype.type(low), room.dtype.type(high)
    near = all_near(source, from_row, count * width, least, most)
    for j in range(count):
        x, y = window(source, from_row + j * width, width), window(room, j * width, width)
        if not near and is_far(x, least, most):
            far[far_at + j] = 1
            for i in range(width):
                y[i] = 0
        else:
            copy(x, 0, width, y, 0)
    for i in range(count * width, BLOCK * width):
        room[i] = 0


@compiled
def pack_keys(keys, values, sizes, packed_keys, packed_values, far_keys, far_values, low, high):
    """Split blocks low to high of keys, then of values, into parts; a far row becomes zeros.

    Sizes are (heads of keys, of values, L, D, e, parts). Packed are keys (parts, heads, blocks, BLOCK, D) and values
    (parts, heads, blocks, e, BLOCK), D and e a multiple of BLOCK, and what is far (heads, blocks, BLOCK).
    """
    heads_k, heads_v, length, dim, e, parts = sizes
    keys, values = as_read(keys), as_read(values)
    packed_keys, packed_values = whole(packed_keys), whole(packed_values)
    far_keys, far_values = whole(far_keys), whole(far_values)
    blocks, row, columns = (length + BLOCK - 1) // BLOCK, pad(dim, BLOCK), pad(e, BLOCK)
    widest = max(dim, e)
    room, wide = aligned(BLOCK * widest, keys[0]), aligned(BLOCK * widest, keys[0])
    turned = aligned(BLOCK * widest, keys[0])
    for b in range(low, high):
        of_values = b >= heads_k * blocks
        number = b - heads_k * blocks if of_values else b
        head, first = number // blocks, number % blocks * BLOCK
        count, at = min(BLOCK, length - first), head * length + first
        if of_values:
            part = heads_v * blocks * columns * BLOCK
            _load_block(values, at, count, e, FAINT_VALUE, FAR_VALUE, room, wide, far_values, number * BLOCK)
            transpose(room, 0, e, BLOCK, e, turned, 0, BLOCK)
            pack_row(turned, 0, e * BLOCK, packed_values, number * columns * BLOCK, part, parts)
        else:
            part = heads_k * blocks * BLOCK * row
            _load_block(keys, at, count, dim, 0.0, FAR, room, wide, far_keys, number * BLOCK)
            for j in range(count):
                pack_row(room, j * dim, dim, packed_keys, (number * BLOCK + j) * row, part, parts)


class Scratch(NamedTuple):
    """Where a block of queries is answered; made in compiled code, where it costs nothing."""

    unit: Any
    rows: Any  # (QUERIES, D), queries as floats; `wide` the same before that, and answers after it
    wide: Any
    turned: Any  # (D, QUERIES)
    queries: Any  # (parts, D / 2, QUERIES), pairs of entries
    scores: Any  # (SIDE, QUERIES), keys by queries
    weights: Any  # (SIDE / 2, 2, QUERIES), pairs of keys by parts, in the place of the scores
    num: Any  # (e, QUERIES), the sums of values
    answers: Any  # (QUERIES, e)
    peaks: Any  # (QUERIES,), the highest score of each query so far
    decay: Any  # by how much its sums shrink as the peak rises; in the end, its log normaliser on its way
    den: Any  # its sum of weights; where they are one part, as that says them
    total: Any  # the same before they were split
    added: Any  # (SIDE,), what is added to the scores of each key, which are logs to the base 2 as peaks are


@inner
def _scratch(dim, e, parts, like, words):
    """Return room for blocks of queries of D entries, and sums of e columns, both multiples of BLOCK."""
    scores = aligned(SIDE * QUERIES, like)
    return Scratch(
        unit_room(), aligned(QUERIES * dim, like), aligned(QUERIES * max(dim, e), like), aligned(dim * QUERIES, like),
        aligned(parts * dim // 2 * QUERIES, words), scores, scores.view(np.uint32), aligned(e * QUERIES, like),
        aligned(QUERIES * e, like),
        aligned(QUERIES, like), aligned(QUERIES, like), aligned(QUERIES, like), aligned(QUERIES, like),
        aligned(SIDE, like),
    )  # fmt: skip


@inner
def _lowest():
    """Return the score of a key that is not seen, below that of any key that counts; less any peak it is finite."""
    return np.float32(-np.finfo(np.float32).max / 2)


@inner
def _begin(s, q, at, first, rows, dim, parts, queries):
    """Read a block of queries, forget every key, and return the bits of those that are far."""
    far, zero = np.uint64(0), np.float32(0)
    for i in range(rows):
        token = queries[first + i] if queries.size > 0 else first + i
        source, from_row = wide_rows(q, (at + token) * dim, dim, s.wide)
        x, y = window(source, from_row, dim), window(s.rows, i * dim, dim)
        if is_far(x, zero, np.float32(FAR)):
            far |= np.uint64(1) << np.uint64(i)
            for c in range(dim):
                y[c] = zero
        else:
            copy(x, 0, dim, y, 0)
    transpose(s.rows, 0, dim, rows, dim, s.turned, 0, QUERIES)
    for x in range(dim):
        y = window(s.turned, x * QUERIES, QUERIES)
        for i in range(rows, QUERIES):
            y[i] = zero
    depth = pad(dim, BLOCK)
    pack_pairs(s.turned, QUERIES, depth, QUERIES, s.queries, QUERIES, depth // 2 * QUERIES, parts)
    for i in range(QUERIES):
        s.peaks[i] = _lowest() / 2
        s.den[i] = s.total[i] = zero
    for i in range(s.num.size):
        s.num[i] = zero
    return far


@inner
def _seeing_far(lo, low, high, k_at, v_at, m_at, far_keys, far_values, mask, bias, words, hides, word_at, shift):
    """Return the bits of the queries that see a far key, or a bias that is, among keys lo + low to lo + high."""
    found = 0
    x, y = window(far_keys, k_at + lo, SIDE), window(far_values, v_at + lo, SIDE)
    for j in range(low, high):
        found += x[j] | y[j]
    if bias.size > 0:
        added = window(bias, m_at + lo, high)
        for j in range(low, high):
            found += 0 if abs(added[j]) <= FAR_VALUE else 1
    bits = np.uint64(0)
    if found > 0:
        for j in range(low, high):
            seen = mask.size == 0 or mask[m_at + lo + j]
            far = (x[j] | y[j]) > 0 or (bias.size > 0 and not abs(bias[m_at + lo + j]) <= FAR_VALUE)
            if seen and far:
                bits |= words[word_at + j] >> shift if hides else ~np.uint64(0)
    return bits


@inner
def _what_is_added(s, low, high, at, mask, bias):
    """Set what is added to the scores of keys low to high, which stand at `at` of the mask and the bias."""
    for j in range(low, high):
        more = np.float32(0)
        if mask.size > 0 and not mask[at + j]:
            more = _lowest()
        elif bias.size > 0 and abs(bias[at + j]) <= FAR_VALUE:
            more = bias[at + j] * LOG2E
        s.added[j] = more


@inner_exact
def _finish_scores(s, low, high, depth, columns, factor, words, hides, word_at, shift, peaks):
    """Multiply scores by the factor, add what is added, hide what is not seen, and raise the peaks (QUERIES,)."""
    scores, nothing, width = s.scores, _lowest(), lanes(s.scores)
    for i in range(0, columns, 2 * width):
        j = i + width
        peak, peak_too = load(peaks, i), load(peaks, j)
        for at in range(low, high):
            added = s.added[at]
            x, y = load(scores, at * QUERIES + i) * factor + added, load(scores, at * QUERIES + j) * factor + added
            if hides:
                word = words[word_at + at] >> shift
                x, y = where(bits_of(word, i, scores), x, nothing), where(bits_of(word, j, scores), y, nothing)
            peak, peak_too = where(x > peak, x, peak), where(y > peak_too, y, peak_too)
            store(x, scores, at * QUERIES + i)
            store(y, scores, at * QUERIES + j)
        store(peak, peaks, i)
        store(peak_too, peaks, j)
    for at in range(depth):
        if at < low or at >= high:
            x = window(scores, at * QUERIES, columns)
            for i in range(columns):
                x[i] = nothing


@inner_exact
def _weigh(s, depth, columns, parts, peaks):
    """Turn scores into pairs of weights 2^(score - peak), in parts, under new peaks; say whether any peak rose.

    Where weights are one part, their sum is that of the parts: they and the values are weighed by the same numbers.
    """
    scores, weights, width, rose, lead = s.scores, s.weights, lanes(s.scores), False, np.float32(LEAD)
    for i in range(0, columns, width):
        before, peak = load(s.peaks, i), load(peaks, i)
        peak = where(peak > before + lead, peak, before)
        rose = rose or some(peak > before)
        factor = power_of_two(before - peak)
        store(factor, s.decay, i)
        store(peak, s.peaks, i)
        den, total = load(s.den, i) * factor, load(s.total, i) * factor
        for at in range(0, depth, 2):
            x = power_of_two(load(scores, at * QUERIES + i) - peak)
            y = power_of_two(load(scores, (at + 1) * QUERIES + i) - peak)
            total = total + (x + y)
            even, odd = raised(x), raised(y)
            store(pair(even, odd), weights, at * QUERIES + i)
            even, odd = cut(even), cut(odd)
            if parts > 1:
                store(pair(raised(x - even), raised(y - odd)), weights, (at + 1) * QUERIES + i)
            else:
                den = den + (even + odd)
        store(total if parts > 1 else den, s.den, i)
        store(total, s.total, i)
    return rose


@inner
def _shrink(s, rows, columns):
    """Shrink what was summed, as peaks have risen."""
    width = lanes(s.num)
    for i in range(0, columns, width):
        shrunk = load(s.decay, i)
        for c in range(rows):
            store(load(s.num, c * QUERIES + i) * shrunk, s.num, c * QUERIES + i)


@compiled
def tiled_softmax(q, packed, mask, bias, scale, sizes, table, words, answers, lse, told, low, high):
    """Answer tiles low to high of a part, as `online_softmax` does, and tell which rows are not to be trusted.

    q are rows, and `packed` what `pack_keys` made. Sizes are (n, D, L, e, heads of keys, of values, parts of what is
    given, terms of products of such, parts of the weights). Rows that see what is far are 1 in `told`, flat as lse.
    """
    n, dim, length, e, heads_k, heads_v, parts, terms, made = sizes
    q, words, side = as_read(q), whole(words), words.shape[1]
    keys, values, far_keys, far_values = (whole(packed[0]), whole(packed[1]), whole(packed[2]), whole(packed[3]))
    tiles, visits, reads, queries, joins = tables(table)
    per_read, blocks = table[TILES], (length + BLOCK - 1) // BLOCK
    row, columns_e = pad(dim, BLOCK), pad(e, BLOCK)
    key_part, value_part = heads_k * blocks * BLOCK * row, heads_v * blocks * columns_e * BLOCK
    factor, (out, out_bits, kind) = np.float32(scale * LOG2E), answers
    s = _scratch(row, columns_e, parts, q[0], np.zeros(0, np.uint32))
    peaks, pieces = aligned(QUERIES, q[0]), SIDE // QUERIES
    s.added[:] = 0
    some_far = bias.size > 0
    for x in (far_keys, far_values):
        for i in range(x.size):
            some_far = some_far or x[i] > 0
    configure(s.unit)
    for piece in range(pieces * low, pieces * high):
        b, shift = piece // pieces, piece % pieces * QUERIES
        read, tile = READ * (b // per_read), TILE * (per_read - 1 - b % per_read)
        first, rows, begin, end = tiles[tile], tiles[tile + 1], tiles[tile + 2], tiles[tile + 3]
        at_q, at_m, at_out = reads[read] * n, reads[read + 3] * length, reads[read + 4] * n
        at_k, at_v = reads[read + 1] * blocks * BLOCK, reads[read + 2] * blocks * BLOCK
        if rows <= shift:
            continue
        first, rows, columns = first + shift, min(rows - shift, QUERIES), QUERIES
        far = _begin(s, q, at_q, first, rows, dim, parts, queries)
        for v in range(begin, end):
            start, stop, number = visits[VISIT * v], visits[VISIT * v + 1], visits[VISIT * v + 2]
            for lo in range(start // BLOCK * BLOCK, stop, SIDE):
                since, upto = max(start - lo, 0), min(stop - lo, SIDE)
                depth, hides, word_at = pad(upto, GRAIN), number >= 0, number * side + lo - start
                if some_far:
                    far |= _seeing_far(
                        lo, since, upto, at_k, at_v, at_m, far_keys, far_values, mask, bias, words, hides, word_at,
                        np.uint64(shift),
                    )  # fmt: skip
                for part in range(parts if AHEAD else 0):
                    fetch_next(values, part * value_part + (at_v + lo) * columns_e, depth * columns_e)
                # scores[j, i] = k_j . q_i
                multiply(
                    s.unit, keys, (at_k + lo) * row, row, BLOCK, key_part, s.queries, 0, QUERIES, row // 2 * QUERIES,
                    (parts, parts, terms), s.scores, 0, QUERIES, depth, columns, pad(dim, GRAIN), False,
                )  # fmt: skip
                for part in range(parts if AHEAD else 0):
                    fetch_next(keys, part * key_part + (at_k + lo + SIDE) * row, SIDE * row)
                if mask.size > 0 or bias.size > 0:
                    _what_is_added(s, since, upto, at_m + lo, mask, bias)
                copy(s.peaks, 0, QUERIES, peaks, 0)
                _finish_scores(
                    s, since, upto, depth, columns, factor, words, hides, word_at, np.uint64(shift), peaks
                )  # fmt: skip
                if _weigh(s, depth, columns, made, peaks):
                    _shrink(s, e, columns)
                # num[c, i] += sum_j v_jc weights_ji
                multiply(
                    s.unit, values, (at_v + lo) * columns_e, BLOCK, columns_e * BLOCK, value_part, s.weights, 0,
                    2 * QUERIES, QUERIES, (parts, made, 2), s.num, 0, QUERIES, pad(e, GRAIN), columns, depth, True,
                )  # fmt: skip
        transpose(s.num, 0, QUERIES, e, rows, s.answers, 0, e)
        for i in range(rows):
            token = at_out + (queries[first + i] if queries.size > 0 else first + i)
            log = s.peaks[i] * LOG2 + math.log(s.total[i]) if s.total[i] != 0 else -np.inf
            write(window(s.answers, i * e, e), e, 1, e, window(s.den, i, 1), s.wide, 0)
            if joins:
                merge_row(s.wide, log, out, lse, token, e)
            elif kind == 0:
                copy(s.wide, 0, e, out, token * e)
            else:
                narrow(s.wide, 0, e, out_bits, kind, token * e)
            if not joins:
                lse[token] = log
            if (far >> np.uint64(i)) & np.uint64(1):
                told[token] = 1
    release(s.unit)
