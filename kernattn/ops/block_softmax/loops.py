"""Exact attention by an online softmax over blocks of keys, while a block of queries stays in cache."""

import math
from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact, phase
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, copy, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import ROWS, lanes
from kernattn.ops._numba.codegen.vectors import bits_of, load, some, store, where
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.outputs import write, write_rows
from kernattn.ops._numba.tiles.products import FULL, product
from kernattn.ops._numba.tiles.rows import as_read, fetch_rows, read_row, read_rows, room_of
from kernattn.ops._numba.tiles.turned import turn_rows
from kernattn.ops.block_softmax.far_loops import answer_far_row
from kernattn.ops.block_softmax.pair_loops import (
    STRIP,
    add_pairs,
    added_to,
    are_pairs,
    is_hidden,
    lowest,
    row_of_pairs,
    words_of_pairs,
)

TILES, VISITS, READS, JOINS = range(4)
HEADER = 4
"""What a table begins with: how many tiles, visits and reads follow, and 1 where a part joins what was answered."""

TILE, VISIT, READ = 4, 3, 5
"""How many numbers each of these has."""


class Scratch(NamedTuple):
    """Where a block of queries is answered; made in compiled code, where it costs nothing."""

    queries: Any  # (D, size), times the scale
    keys: Any  # (room, D), of a block of keys, as `values` and `scores` are; before them, queries that are gathered
    values: Any  # (room, row); after them, answers on their way to their rows
    scores: Any  # (room, size)
    num: Any  # (size, row), the sums of values
    peaks: Any  # (size,), the highest score of each query so far
    lows: Any  # the lowest, or 0
    decay: Any  # by how much its sums shrink as the peak rises; in the end, its log normaliser on its way
    den: Any  # its sum of weights
    size: Any
    row: Any


@inner
def _adjust(scores, row, rows, columns, mask, bias, at):
    """Hide the scores of masked keys, and add to the others what is added to theirs."""
    nothing = lowest(scores)
    for j in range(rows):
        x = window(scores, j * row, columns)
        if mask.size > 0 and not mask[at + j]:
            for i in range(columns):
                x[i] = nothing
        elif bias.size > 0:
            more = bias[at + j]
            for i in range(columns):
                x[i] += more


@inner
def _hide(scores, row, rows, columns, words):
    """Hide the scores of key j from every query i for which bit i of word j is 0."""
    nothing, width = lowest(scores), lanes(scores)
    for j in range(rows):
        word = words[j]
        for i in range(0, columns, width):
            if ~word >> np.uint64(i) == 0:  # all others see it
                break
            at = j * row + i
            store(where(bits_of(word, i, scores), load(scores, at), nothing), scores, at)


@inner
def _span(words, columns, count, spans, like):
    """Set which keys, first and end, any query of two vectors sees; say whether that leaves any out.

    First keys are those of blocks of products.
    """
    one, some, panel = np.uint64(1), False, 2 * lanes(like)
    for p in range(0, columns, panel):
        own = ((one << np.uint64(panel)) - one if panel < 64 else ~np.uint64(0)) << np.uint64(p)
        begin, end = 0, count
        while begin < count and words[begin] & own == 0:
            begin += 1
        while end > begin and words[end - 1] & own == 0:
            end -= 1
        begin = begin // ROWS * ROWS
        some = some or begin > 0 or end < count
        spans[p // panel, 0], spans[p // panel, 1] = begin, end
    return some


@inner_exact
def _exponentials(scratch, columns, spans):
    """Turn scores (keys, queries) into exp(score - peak) under raised peaks; say whether any peak rose."""
    scores, row, width = scratch.scores, scratch.size, lanes(scratch.scores)
    peaks, lows, decay, den = scratch.peaks, scratch.lows, scratch.decay, scratch.den
    rose = False
    for i in range(0, columns, 2 * width):  # two vectors of columns at a time, the last one twice if it is alone
        j = min(i + width, row - width)
        low, high = spans[i // (2 * width), 0] * row, spans[i // (2 * width), 1] * row
        before, before_too = load(peaks, i), load(peaks, j)
        peak, peak_too = before, before_too
        least, least_too = load(lows, i), load(lows, j)
        for at in range(low, high, row):
            x, y = load(scores, at + i), load(scores, at + j)
            peak, peak_too = where(x > peak, x, peak), where(y > peak_too, y, peak_too)
            least, least_too = where(x < least, x, least), where(y < least_too, y, least_too)
        rose = rose or some((peak > before) | (peak_too > before_too))
        store(peak, peaks, i)
        store(peak_too, peaks, j)
        store(least, lows, i)
        store(least_too, lows, j)
        factor, factor_too = decayed(before - peak), decayed(before_too - peak_too)
        store(factor, decay, i)
        store(factor_too, decay, j)
        total, total_too = load(den, i) * factor, load(den, j) * factor_too
        for at in range(low, high, row):
            x, y = load(scores, at + i), load(scores, at + j)
            x, y = decayed(x - peak), decayed(y - peak_too)
            store(x, scores, at + i)
            store(y, scores, at + j)
            total, total_too = total + x, total_too + y
        store(total, den, i)
        store(total_too, den, j)
    return rose


@inner
def _set_aside(values, row_v, keys, width, weights, row, rows, words, num, row_num, clean):
    """Copy values with 0 for what is not finite, which goes to the rows that see it: the bits of its word.

    They may lie in `clean` already.
    """
    one = np.uint64(1)
    for j in range(keys):
        source, target = window(values, j * row_v, width), window(clean, j * row_v, width)
        for c in range(width):
            y = source[c]
            if not math.isfinite(y):
                for i in range(rows):
                    if (words[j] >> np.uint64(i)) & one:
                        num[i * row_num + c] += weights[j * row + i] * y
                y = 0
            target[c] = y


@inner
def _scratch(dim, e, block, key_block, apart, like):
    """Return room for blocks of so many queries and keys; also for queries and answers that stand `apart`."""
    row, size = tile_rows(e, like), tile_rows(block, like)
    room = tile_rows(max(block, key_block) if apart else key_block, like)
    return Scratch(
        aligned(dim * size, like), aligned(room * dim, like), aligned(room * row, like), aligned(room * size, like),
        aligned(size * row, like), aligned(size, like), aligned(size, like), aligned(size, like), aligned(size, like),
        size, row,
    )  # fmt: skip


@inner
def _shrink(scratch, rows):
    """Shrink what was summed, as peaks have risen."""
    num, row = scratch.num, scratch.row
    for i in range(rows):
        x, shrunk = window(num, i * row, row), scratch.decay[i]
        for c in range(row):
            x[c] *= shrunk


@inner
def _begin(scratch, q, at, first, rows, dim, factor, tokens):
    """Read a block of queries, and forget every key."""
    queries, num, size = scratch.queries, scratch.num, scratch.size
    zero = num.dtype.type(0)
    if tokens.size > 0:
        for i in range(rows):
            read_row(q, (at + tokens[first + i]) * dim, dim, scratch.keys, i * dim)
        turn_rows((whole(scratch.keys), q[1], 0), 0, rows, dim, factor, scratch.keys, queries, size)
    else:
        turn_rows(q, (at + first) * dim, rows, dim, factor, scratch.keys, queries, size)
    if rows < size:
        for x in range(dim):
            y = window(queries, x * size, size)
            for i in range(rows, size):
                y[i] = zero
    for i in range(size):
        scratch.peaks[i] = lowest(num) / 2
        scratch.lows[i] = scratch.den[i] = zero
    for i in range(num.size):
        num[i] = 0


@inner
def tables(table):
    """Return the tiles, visits, reads and queries of a table, and whether its part joins what was answered."""
    tiles = window(table, HEADER, TILE * table[TILES])
    visits = window(table, HEADER + tiles.size, VISIT * table[VISITS])
    reads = window(table, HEADER + tiles.size + visits.size, READ * table[READS])
    rest = HEADER + tiles.size + visits.size + reads.size
    return tiles, visits, reads, window(table, rest, table.size - rest), table[JOINS] > 0


@inner
def _tokens_seen(i, visits, low, high, words, side, mask, mask_at, pairs, at_pairs, room):
    """Return the tokens that query i of a tile sees in visits low to high; its pairs begin at `at_pairs`."""
    count, one = 0, np.uint64(1)
    for s in range(low, high):
        count += visits[VISIT * s + 1] - visits[VISIT * s]
    seen = np.empty(count, np.int64)
    count = 0
    for s in range(low, high):
        begin, end, number = visits[VISIT * s], visits[VISIT * s + 1], visits[VISIT * s + 2]
        for j in range(begin, end):
            there = number < 0 or (words[number * side + j - begin] >> np.uint64(i)) & one != 0
            if there and (mask.size == 0 or mask[mask_at + j]) and not is_hidden(pairs, at_pairs, j, room):
                seen[count] = j
                count += 1
    return seen[:count]


@inner_exact
def merge_row(answer, log, out, lse, at, e):
    """Add the answer of one part to what other parts answered."""
    nothing, before = -np.inf, lse[at]
    if log == nothing:
        return
    target = window(out, at * e, e)
    if before == nothing:
        for c in range(e):
            target[c] = answer[c]
        lse[at] = log
        return
    peak = max(before, log)
    one, other = math.exp(before - peak), math.exp(log - peak)
    total = one + other
    one, other = target.dtype.type(one / total), target.dtype.type(other / total)
    if one == 0:  # a part without weight may hold anything
        copy(answer, 0, e, target, 0)
    elif other != 0:
        for c in range(e):
            target[c] = one * target[c] + other * answer[c]
    lse[at] = peak + math.log(total)


@phase
def _read_block(scratch, k, v, from_k, from_v, from_m, count, dim, e, mask):
    """Return keys and values in floats, and the step between values: as they lie, or copies where they must be."""
    padded = mask.size > 0 or e % lanes(scratch.num) > 0
    if padded or room_of(1, k) + room_of(1, v) > 0 or count % ROWS > 0:
        step = scratch.row if padded else e
        read_rows(k, from_k * dim, count, dim, mask, from_m, scratch.keys, dim)
        read_rows(v, from_v * e, count, e, mask, from_m, scratch.values, step)
        return whole(scratch.keys), whole(scratch.values), step
    (keys, _, _), (values, _, _) = k, v
    return window(keys, from_k * dim, count * dim), window(values, from_v * e, count * e), e


@inner
def _score_spans(keys, dim, rows, scratch, spans):
    """Compute scores[j, i] = k_j . q_i of the keys in the span of query i."""
    scores, size, panel = scratch.scores, scratch.size, 2 * lanes(scratch.scores)
    for i in range(0, rows, panel):
        begin, end = spans[i // panel, 0], spans[i // panel, 1]
        product(
            keys, begin * dim, dim, 1, scratch.queries, i, size, scores, begin * size + i, size, end - begin,
            min(panel, rows - i), dim, False, FULL,
        )  # fmt: skip


@inner
def _add_spans(values, step, e, rows, scratch, spans):
    """Add values of the keys in the span of query i to its sums: weights of others are 0."""
    scores, size, num, row = scratch.scores, scratch.size, scratch.num, scratch.row
    panel = 2 * lanes(scores)
    for i in range(0, rows, panel):
        begin, end = spans[i // panel, 0], spans[i // panel, 1]
        product(
            scores, begin * size + i, 1, size, values, begin * step, step, num, i * row, row, min(panel, rows - i), e,
            end - begin, True, FULL,
        )  # fmt: skip


@phase
def _put(answers, log, i, e, joins, scattered, answered, lse, to):
    """Put the answer of query i of a tile in its place: beside others', in floats, or in bits if it is `scattered`."""
    out, bits, kind = answered
    if joins:
        merge_row(window(answers, i * e, e), log, out, lse, to, e)
        return
    lse[to] = log
    if kind == 0:
        copy(answers, i * e, e, out, to * e)
    elif scattered:
        narrow(answers, i * e, e, bits, kind, to * e)


@compiled
def online_softmax(q, k, v, mask, bias, pairs, scale, table, words, answered, lse, sizes, low, high):
    """Answer tiles low to high of a part, the last ones of each read first: causal ones have most to do.

    q (heads, n, D), k (heads, L, D), v (heads, L, e), keys in the order of the part, and `answered` are (floats, bits,
    kind); sizes are (n, D, L, e). All is flat. What is added to `pairs` is as `pair_loops` has it. The table holds, one
    after the other: its header; tiles, visits and reads; and queries, none where they stand as they are. Reads are
    heads of q, of k, of v, of the mask and the bias, of out; the rest, and the words (B, SIDE), are those of
    `kernattn._plans.parts.Part`. A part that joins what was answered writes floats.
    """
    (n, dim, length, e), side = sizes, words.shape[1]
    q, k, v, words = as_read(q), as_read(k), as_read(v), whole(words)
    paired = are_pairs(pairs)
    out, bits, kind = answered
    tiles, visits, reads, queries, joins = tables(table)
    per_read, key_block = table[TILES], min(side, length)
    scattered = queries.size > 0
    placed = scattered or joins
    soon, apart = kind != 0 and not placed, kind != 0 or placed
    scratch = _scratch(dim, e, min(side, n), key_block, apart or room_of(1, q) > 0, lse)
    strip, own = aligned(2 * STRIP * scratch.size if paired else 0, lse), np.empty(side if paired else 0, np.uint64)
    spans = np.empty((scratch.size // lanes(lse) // 2 + 1, 2), np.int64)
    num, peaks, lows, den, row_e = scratch.num, scratch.peaks, scratch.lows, scratch.den, scratch.row
    factor = lse.dtype.type(scale)
    coarse = scale != 0 and not np.finfo(lse.dtype).tiny <= abs(factor) < np.inf
    for b in range(low, high):
        read, tile = READ * (b // per_read), TILE * (per_read - 1 - b % per_read)
        first, rows, begin, end = tiles[tile], tiles[tile + 1], tiles[tile + 2], tiles[tile + 3]
        at_q, at_k, at_v = reads[read] * n, reads[read + 1] * length, reads[read + 2] * length
        at_m, at_out = reads[read + 3] * length, reads[read + 4] * n
        head = b // per_read
        _begin(scratch, q, at_q, first, rows, dim, factor, queries)
        # the keys that the tile sees, block by block
        for s in range(begin, end):
            start, stop, number = visits[VISIT * s], visits[VISIT * s + 1], visits[VISIT * s + 2]
            seen = window(words, number * side, side)
            for at in range(start, stop, key_block):
                count = min(key_block, stop - at)
                of_keys, values, step = _read_block(
                    scratch, k, v, at_k + at, at_v + at, at_m + at, count, dim, e, mask
                )  # fmt: skip
                # scores[j, i] = k_j . q_i
                scores, size = scratch.scores, scratch.size
                parted = number >= 0 and _span(seen, rows, count, spans, lse)
                if parted:
                    _score_spans(of_keys, dim, rows, scratch, spans)
                else:
                    spans[:, 0], spans[:, 1] = 0, count
                    product(
                        of_keys, 0, dim, 1, scratch.queries, 0, size, scores, 0, size, count, rows, dim, False, FULL
                    )  # fmt: skip
                if mask.size > 0 or bias.size > 0:
                    _adjust(scores, size, count, rows, mask, bias, at_m + at)
                if paired:
                    add_pairs(scores, size, count, rows, pairs, head, n, queries, first, at, mask, at_m + at, strip)
                if number >= 0:
                    _hide(scores, size, count, rows, seen)
                if room_of(1, k) > 0:  # the next rows, which will be widened at once
                    fetch_rows(k, (at_k + at + count) * dim, count * dim)
                    fetch_rows(v, (at_v + at + count) * e, count * e)
                if _exponentials(scratch, rows, spans):
                    _shrink(scratch, rows)
                if (number >= 0 or paired) and not finite(window(values, 0, (count - 1) * step + e)):
                    if paired:
                        words_of_pairs(own, count, rows, pairs, head, n, queries, first, at, seen, number, strip)
                        seen = whole(own)
                    _set_aside(values, step, count, e, scores, size, rows, seen, num, row_e, scratch.values)
                    values = whole(scratch.values)
                if parted:
                    _add_spans(values, step, e, rows, scratch, spans)
                else:
                    product(scores, 0, 1, size, values, 0, step, num, 0, row_e, rows, e, count, True, FULL)
        # answers: far rows once more, by themselves; each to its row, or beside what other parts answered
        answers, at = (whole(scratch.values), 0) if apart else (out, at_out + first)
        logs, at_logs = (whole(scratch.decay), 0) if placed else (lse, at_out + first)
        whole_rows = answered if soon else (answers, bits, 0)
        write_rows(num, row_e, rows, e, den, answers, whole_rows, (at_out + first if soon else at) * e)
        for i in range(rows):
            token = queries[first + i] if scattered else first + i
            logs[at_logs + i] = peaks[i] + math.log(den[i]) if den[i] != 0 else -np.inf
            if coarse or lows[i] == -np.inf or not (den[i] > 0 and finite(window(num, i * row_e, e))):
                if soon:  # what it may leave as it is
                    write(window(num, i * row_e, e), e, 1, e, window(den, i, 1), answers, i * e)
                at_pairs = row_of_pairs(pairs, head, n, token)
                tokens = _tokens_seen(i, visits, begin, end, words, side, mask, at_m, pairs, at_pairs, strip)
                answer_far_row(
                    q, (at_q + token) * dim, k, at_k * dim, v, at_v * e, dim, e, tokens,
                    added_to(tokens, bias, at_m, pairs, at_pairs, strip), scale, window(answers, (at + i) * e, e),
                    logs, at_logs + i,
                )  # fmt: skip
                if soon:
                    narrow(answers, i * e, e, bits, kind, (at_out + token) * e)
            if placed:
                _put(answers, logs[i], i, e, joins, scattered, answered, lse, at_out + token)
