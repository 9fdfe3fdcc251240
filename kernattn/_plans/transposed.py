"""Plans read from their keys: tiles of keys, and the queries by which each is visited, from the same pairs."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.intervals import GAP
from kernattn._plans.parts import NO_WORDS, SIDE, SLAB, Part, Visits, freeze, join, pack_words, visits_of
from kernattn._plans.plan import Plan, kept_with_plan


@lru_cache(maxsize=32)
def dense_from_keys(n: int, length: int, causal: bool) -> Part:
    """Return the part of all queries, or of those from j + n - length on for key j: words, and a stretch behind."""
    first = np.arange(0, length, SIDE)
    rows, zero = np.minimum(SIDE, length - first), np.zeros_like(first)
    if not causal:
        part = Part(None, None, np.stack([first, rows, zero, zero + 1], axis=-1), np.array([[0, n, -1]]), NO_WORDS)
        return freeze(part)
    begin = np.clip(first + n - length, 0, n)  # the first query that sees a key of the tile
    lows, highs = np.stack([begin, np.minimum(begin + SIDE, n)]), np.stack([np.minimum(begin + SIDE, n), zero + n])
    shifts, number = np.unique(np.minimum(begin + length - n - first, SIDE), return_inverse=True)
    kind = np.stack([number.reshape(-1), zero - 1])
    there = (lows < highs).T
    visits = np.stack([lows.T[there], highs.T[there], kind.T[there]], axis=-1)
    ends = np.cumsum(np.sum(there, axis=1))
    seen = np.arange(SIDE) <= np.arange(SIDE)[:, None] + shifts[:, None, None]  # (B, query, key)
    begins = np.concatenate([[0], ends[:-1]])
    return freeze(Part(None, None, np.stack([first, rows, begins, ends], axis=-1), visits, pack_words(seen)))


@kept_with_plan
def from_keys(plan: Plan) -> Plan:
    """Return a plan of parts whose rows are the keys, and whose keys are the queries."""
    heads = tuple(tuple(_transpose(part, plan.length) for part in parts) for parts in plan.heads)
    return Plan("parts", plan.length, plan.n, heads)


def _transpose(part: Part, length: int) -> Part:
    length = length if part.keys is None else len(part.keys)
    first = np.arange(0, length, SIDE)
    rows = np.minimum(SIDE, length - first)
    tile, query, word = _words_of_queries(part)
    stretch = np.cumsum(np.append(True, (tile[1:] != tile[:-1]) | (query[1:] - query[:-1] > GAP))[: len(tile)]) - 1
    begins = np.flatnonzero(np.append(True, stretch[1:] != stretch[:-1])[: len(tile)])
    inside = query - query[begins][stretch]
    which = np.append(True, (inside[1:] // SIDE != inside[:-1] // SIDE) | (stretch[1:] != stretch[:-1]))[: len(tile)]
    visit = np.cumsum(which) - 1
    words = np.zeros((int(np.sum(which)), SIDE), np.uint64)
    words[visit, inside % SIDE] = word
    low = (query - inside % SIDE)[which]
    high = np.zeros_like(low)
    np.maximum.at(high, visit, query + 1)
    tile = tile[which]
    all_keys = np.uint64(2**64 - 1) >> (SIDE - rows[tile]).astype(np.uint64)
    partial = np.any((words != all_keys[:, None]) & (np.arange(SIDE) < (high - low)[:, None]), axis=1)
    return join(Visits(tile, low, high, partial, words[partial]), first, rows, part.keys, part.queries)


def _words_of_queries(part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """Return, in their order, the tiles of keys and queries that meet, and which keys of the tile the query sees."""
    tile, low, _, _, words = visits_of(part)
    first = part.tiles[tile, 0]
    meets = []
    for at in range(0, len(tile), SLAB):
        some = slice(at, at + SLAB)
        bits = (words[some, :, None] >> np.arange(SIDE, dtype=np.uint64)) & np.uint64(1)  # (visit, key, query)
        turned = pack_words(np.swapaxes(bits, 1, 2).astype(bool))  # (visit, query), of keys from `low` on
        shift = (low[some] % SIDE).astype(np.uint64)[:, None]
        queries = first[some, None] + np.arange(SIDE)
        over = np.where(shift > 0, turned >> (SIDE - np.maximum(shift, 1)), 0).astype(np.uint64)
        for tiles, own in ((low[some] // SIDE, turned << shift), (low[some] // SIDE + 1, over)):
            there = own != 0
            meets.append((np.broadcast_to(tiles[:, None], own.shape)[there], queries[there], own[there]))
    tile, query, word = (np.concatenate(x) for x in zip(*meets, strict=True)) if meets else (low, low, low.view("u8"))
    order = np.lexsort((query, tile))
    tile, query, word = tile[order], query[order], word[order]
    begins = np.flatnonzero(np.append(True, (tile[1:] != tile[:-1]) | (query[1:] != query[:-1]))[: len(tile)])
    if len(begins) == 0:
        return tile, query, word
    return tile[begins], query[begins], np.bitwise_or.reduceat(word, begins)
