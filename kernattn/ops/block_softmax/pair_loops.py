"""What is added to the scores of pairs of tokens, in loops: a tile of it at a time.

Pairs are (rows, heads, keys, l): a bias (heads, n, l) as (floats, bits, kind), flat; which of its heads a read of the
part has; the token of each key of the part, none where they stand as they are; and how many keys there are. Without a
bias there are no heads. A pair of -inf is one that is not seen.
"""

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load, store, where
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, read_row

STRIP = 16
"""Keys whose pairs are turned at once."""


@inner
def lowest(like):
    """Return the score of a key that is not seen, below that of any key that counts; one that overflows is lower."""
    return like.dtype.type(-np.finfo(like.dtype).max)


@inner
def are_pairs(pairs):
    """Is there a bias?"""
    return pairs[1].size > 0


@inner
def row_of_pairs(pairs, read, n, token):
    """Return where the row of a token begins in the head of a read."""
    return (pairs[1][read] * n + token) * pairs[3] if pairs[1].size > 0 else 0


@inner
def read_pairs(pairs, at_row, at, count, tile, to):
    """Copy what is added to keys at to at + count of a part, in a row that begins at `at_row`, to a tile."""
    bias, _, keys, _ = pairs
    bias = as_read(bias)
    if keys.size == 0:
        read_row(bias, at_row + at, count, tile, to)
        return
    for j in range(count):
        read_row(bias, at_row + keys[at + j], 1, tile, to + j)


@inner
def pair_of(pairs, at_row, j, room):
    """Return what is added to key j of a part, by way of a room for one number."""
    read_pairs(pairs, at_row, j, 1, room, 0)
    return room[0]


@inner
def is_hidden(pairs, at_row, j, room):
    """Does a bias hide key j of a part?"""
    return pairs[1].size > 0 and pair_of(pairs, at_row, j, room) == -math.inf


@inner
def added_to(seen, bias, bias_at, pairs, at_row, room):
    """Return what is added to the scores of the keys `seen` of a row, or no numbers."""
    some = bias.size > 0 or pairs[1].size > 0
    added = np.zeros(seen.size if some else 0)
    for i in range(added.size):
        if bias.size > 0:
            added[i] += bias[bias_at + seen[i]]
        if pairs[1].size > 0:
            added[i] += pair_of(pairs, at_row, seen[i], room)
    return added


@inner
def add_pairs(scores, row, count, rows, pairs, read, n, queries, first, at, mask, mask_at, strip):
    """Add to scores (keys, queries), and hide those to which -inf is added; those of masked keys stay hidden."""
    nothing, width, infinity = lowest(scores), lanes(scores), scores.dtype.type(-math.inf)
    turned, (bias, _, keys, length) = window(strip, STRIP * row, STRIP * row), pairs
    bias = as_read(bias)
    for low in range(0, count, STRIP):
        some = min(STRIP, count - low)
        if bias[2] == 0 and keys.size == 0 and queries.size == 0:  # floats that lie as scores do
            transpose(bias[0], row_of_pairs(pairs, read, n, first) + at + low, length, rows, some, turned, 0, row)
        else:
            for i in range(rows):
                token = queries[first + i] if queries.size > 0 else first + i
                read_pairs(pairs, row_of_pairs(pairs, read, n, token), at + low, some, strip, i * STRIP)
            transpose(strip, 0, STRIP, rows, some, turned, 0, row)
        for j in range(some):
            if mask.size > 0 and not mask[mask_at + low + j]:
                continue
            for i in range(0, rows, width):
                x, y = load(scores, (low + j) * row + i), load(turned, j * row + i)
                store(where(y == infinity, nothing, x + y), scores, (low + j) * row + i)


@inner
def words_of_pairs(own, count, rows, pairs, read, n, queries, first, at, words, number, room):
    """Write words of which queries see each key, by a bias and, if their number is not below 0, by `words`."""
    for j in range(count):
        own[j] = words[j] if number >= 0 else ~np.uint64(0)
    for i in range(rows):
        token = queries[first + i] if queries.size > 0 else first + i
        at_row = row_of_pairs(pairs, read, n, token)
        for j in range(count):
            if is_hidden(pairs, at_row, at + j, room):
                own[j] &= ~(np.uint64(1) << np.uint64(i))
