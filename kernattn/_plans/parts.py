"""Parts of a plan: tiles of queries, and the stretches of keys that they visit, whole or by the bits of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

SIDE = 64
"""Queries in a tile, and keys in a visit of bits, at most: the width of a word."""

SLAB = 256
"""Visits of which every pair is looked at, at once."""

NO_WORDS = np.zeros((0, SIDE), np.uint64)

Tokens: TypeAlias = NDArray[np.int64] | None


class Part(NamedTuple):
    """Tiles of queries, and the stretches of keys that each of them visits. No pair of a part is visited twice."""

    queries: Tokens  # the row of each query, each at most once; None: as they stand
    keys: Tokens  # the token of each key; None: as they stand
    tiles: NDArray[np.int64]  # (T, 4): the first query, how many, the first visit and the end of the visits
    visits: NDArray[np.int64]  # (V, 3): the first key, the end, and -1 where all is seen, or else words: then SIDE keys
    words: NDArray[np.uint64]  # (B, SIDE): bit i of word j says whether query i of the tile sees key j of the visit

    @property
    def pairs(self) -> int:
        """How many pairs it admits."""
        tile, visits = _visits_of_tiles(self)
        rows, size = self.tiles[tile, 1], visits[:, 1] - visits[:, 0]
        seen = visits[:, 2] < 0
        pairs = int(np.sum((rows * size)[seen]))
        words = self.words[visits[~seen, 2]] & _rows_mask(rows[~seen])[:, None]
        there = np.arange(SIDE) < size[~seen, None]
        return pairs + int(np.sum(np.bitwise_count(words)[there], dtype=np.int64))

    @property
    def visited(self) -> int:
        """How many pairs are computed."""
        tile, visits = _visits_of_tiles(self)
        return int(np.sum(self.tiles[tile, 1] * (visits[:, 1] - visits[:, 0])))


def freeze(part: Part) -> Part:
    """Return the part, its arrays read-only."""
    for array in part:
        if array is not None:
            array.setflags(write=False)
    return part


def _rows_mask(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return words whose first bits are set, as many as there are rows, 1 to SIDE."""
    return np.uint64(2**64 - 1) >> (SIDE - rows).astype(np.uint64)


def _visits_of_tiles(part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for every visit of every tile that tile, and the visit."""
    counts = part.tiles[:, 3] - part.tiles[:, 2]
    tile = np.repeat(np.arange(len(counts)), counts)
    inside = np.arange(len(tile)) - np.repeat(np.cumsum(counts) - counts, counts)
    return tile, part.visits[part.tiles[tile, 2] + inside]


def pairs_of(part: Part) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield for each visit its rows (r,), its tokens (c,) and what is seen (r, c)."""
    tile, visits = _visits_of_tiles(part)
    for t, (low, high, word) in zip(tile, visits, strict=True):
        first, rows = part.tiles[t, :2]
        i, j = np.arange(first, first + rows), np.arange(low, high)
        seen = np.ones((rows, high - low), bool)
        if word >= 0:
            bits = part.words[word, : high - low] >> np.arange(rows, dtype=np.uint64)[:, None]
            seen = (bits & np.uint64(1)).astype(bool)
        yield (i if part.queries is None else part.queries[i]), (j if part.keys is None else part.keys[j]), seen


def tokens_of(parts: tuple[Part, ...], row: int) -> NDArray[np.int64]:
    """Return the tokens that a row sees."""
    tokens = [np.zeros(0, np.int64)]
    for part in parts:
        at = np.array([row]) if part.queries is None else np.flatnonzero(part.queries == row)
        if len(at) == 0:
            continue
        first, _, begin, end = part.tiles[np.searchsorted(part.tiles[:, 0], at[0], side="right") - 1]
        for low, high, word in part.visits[begin:end]:
            keys = np.arange(low, high)
            if word >= 0:
                keys = keys[(part.words[word, : high - low] >> np.uint64(at[0] - first)) & np.uint64(1) > 0]
            tokens.append(keys if part.keys is None else part.keys[keys])
    return np.concatenate(tokens)


def seen_of(parts: tuple[Part, ...], low: int, high: int, length: int) -> NDArray[np.bool_]:
    """Return the mask (high - low, length) of the keys that rows low to high see."""
    seen = np.zeros((high - low, length), bool)
    for row in range(low, high):
        seen[row - low, tokens_of(parts, row)] = True
    return seen


@lru_cache(maxsize=32)
def dense(n: int, length: int, causal: bool) -> Part:
    """Return the part of all keys, or of those up to i + length - n for row i: a stretch, and words at its end."""
    first = np.arange(0, n, SIDE)
    rows = np.minimum(SIDE, n - first)
    zero, one = np.zeros_like(first), np.ones_like(first)
    if not causal or n == 1:
        part = Part(None, None, np.stack([first, rows, zero, one], axis=-1), np.array([[0, length, -1]]), NO_WORDS)
    else:
        last = first + length - n  # the last key that row 0 of a tile sees
        base = np.maximum(0, (last + 1) // SIDE * SIDE)  # up to here all rows see all
        lows = np.stack([zero, base, base + SIDE])
        highs = np.minimum(np.stack([base, base + SIDE, base + 2 * SIDE]), np.minimum(length, last + rows))
        shifts = np.stack([one, last - base, last - base - SIDE])  # of the last key of row 0 in the visit
        shifts, number = np.unique(shifts, return_inverse=True)
        kind = number.reshape(lows.shape)
        kind[0] = -1
        there = (lows < highs).T
        visits = np.stack([lows.T[there], highs.T[there], kind.T[there]], axis=-1)
        ends = np.cumsum(np.sum(there, axis=1))
        begins = np.concatenate([[0], ends[:-1]])
        seen = np.arange(SIDE)[:, None] <= np.arange(SIDE) + shifts[:, None, None]  # (B, key, query)
        part = Part(None, None, np.stack([first, rows, begins, ends], axis=-1), visits, pack_words(seen))
    return freeze(part)


def pack_words(seen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return (..., SIDE keys, SIDE queries) as words."""
    bits = np.ascontiguousarray(np.packbits(seen, axis=-1, bitorder="little"))
    return bits.view("<u8")[..., 0].astype(np.uint64, copy=False)


class Visits(NamedTuple):
    """Visits in any order before they are those of tiles: their tile, first key, end, words or all (0)."""

    tile: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    partial: NDArray[np.bool_]
    words: NDArray[np.uint64]  # of the partial ones, in their order


def join(found: Visits, first: NDArray[np.int64], rows: NDArray[np.int64], queries: Tokens, keys: Tokens) -> Part:
    """Return the part of tiles that begin at `first`, with words deduplicated."""
    number = np.full(len(found.tile), -1)
    words = np.ascontiguousarray(found.words)
    if len(words):
        rowwise = words.view(np.dtype((np.void, words.itemsize * SIDE)))[:, 0]
        _, kinds, number[found.partial] = np.unique(rowwise, return_index=True, return_inverse=True)
        words = words[kinds]
    order = np.lexsort((found.low, found.tile))
    visits = np.stack([found.low, found.high, number], axis=-1)[order]
    ends = np.searchsorted(found.tile[order], np.arange(len(first)), side="right")
    tiles = np.stack([first, rows, np.concatenate([[0], ends[:-1]]), ends], axis=-1)
    return freeze(Part(queries, keys, *(np.ascontiguousarray(x) for x in (tiles, visits, words))))


def visits_of(part: Part) -> Visits:
    """Return all visits of a part with at most SIDE keys each, and words for every one."""
    tile, visits = _visits_of_tiles(part)
    counts = -(-(visits[:, 1] - visits[:, 0]) // SIDE)
    which = np.repeat(np.arange(len(counts)), counts)
    inside = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    low = visits[which, 0] + SIDE * inside
    high = np.minimum(low + SIDE, visits[which, 1])
    number = visits[which, 2]
    full = np.where(np.arange(SIDE) < (high - low)[:, None], _rows_mask(part.tiles[tile[which], 1])[:, None], 0)
    words = full.astype(np.uint64)
    some = number >= 0
    words[some] &= part.words[number[some]]
    return Visits(tile[which], low, high, np.ones(len(which), bool), words)


def kept(part: Part, keep: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]) -> Part:
    """Return the pairs of a part that `keep(rows, tokens)` admits, by looking at each pair of its visits."""
    tile, low, high, _, words = visits_of(part)
    first, rows = part.tiles[:, 0], part.tiles[:, 1]
    for at in range(0, len(tile), SLAB):
        some = slice(at, at + SLAB)
        i = np.minimum(first[tile[some], None] + np.arange(SIDE), (first + rows)[tile[some], None] - 1)
        j = np.minimum(low[some, None] + np.arange(SIDE), high[some, None] - 1)
        i = i if part.queries is None else part.queries[i]
        j = j if part.keys is None else part.keys[j]
        words[some] &= pack_words(keep(i[:, None, :], j[:, :, None]))
    there = np.any(words != 0, axis=1)
    tile, low, high, words = tile[there], low[there], high[there], words[there]
    partial = np.any((words != _rows_mask(rows[tile])[:, None]) & (np.arange(SIDE) < (high - low)[:, None]), axis=1)
    return join(Visits(tile, low, high, partial, words[partial]), first, rows, part.queries, part.keys)
