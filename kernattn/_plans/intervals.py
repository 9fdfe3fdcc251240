"""Parts of plans from disjoint intervals of keys for every row, in a chosen order of tokens, by array operations."""

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.parts import NO_WORDS, SIDE, Part, Tokens, Visits, join

Integers = NDArray[np.int64]

GAP = 16
"""Keys between two stretches of a tile that are visited with them."""


def cut_at_last(low: Integers, high: Integers, limit: Integers, keys: Tokens) -> Integers:
    """Return the ends of intervals of keys, ascending in each, cut behind the last token that is at most `limit`."""
    if keys is None:
        return np.minimum(high, limit + 1)
    low, high = np.broadcast_arrays(low, high)
    low, high = low.copy(), np.maximum(low, high)
    for _ in range(int(np.max(high - low, initial=0)).bit_length()):
        middle = (low + high) // 2
        goes = (low < high) & (keys[np.minimum(middle, len(keys) - 1)] <= limit)
        low, high = np.where(goes, middle + 1, low), np.where(goes, high, middle)
    return low


def part_of(
    low: Integers,
    high: Integers,
    runs: Integers,
    length: int,
    *,
    cuts: Integers | None = None,
    queries: Tokens = None,
    keys: Tokens = None,
) -> Part:
    """Return the part in which rows runs[r] to runs[r + 1] see keys low[:, r] to high[:, r], disjoint, of `length`.

    Tiles begin at `cuts`, and SIDE rows after each other.
    """
    end = int(runs[-1])
    first = _tiles(np.zeros(1, np.int64) if cuts is None else cuts, end)
    rows = np.diff(np.append(first, end))
    bounds = runs[:-1]
    if len(runs) <= end:  # runs of many rows, which tiles may cut
        bounds = np.union1d(bounds, first)
        which = np.searchsorted(runs, bounds, side="right") - 1
        low, high = low[:, which], high[:, which]
    tile = np.searchsorted(first, bounds, side="right") - 1
    sizes = np.diff(np.append(bounds, end))
    bits = (np.uint64(2**64 - 1) >> (SIDE - sizes).astype(np.uint64)) << (bounds - first[tile]).astype(np.uint64)
    keyed = tile * (length + 1)
    there = low < high
    events = np.concatenate([(keyed + low)[there], (keyed + high)[there]])
    size, bit = (np.broadcast_to(x, low.shape)[there] for x in (sizes, bits))
    order = np.argsort(events, kind="stable")
    events = events[order]
    depth = np.cumsum(np.concatenate([size, -size])[order])
    state = np.bitwise_xor.accumulate(np.concatenate([bit, bit])[order])  # an interval begins and ends with a toggle
    ends = np.append(events[1:] != events[:-1], True)[: len(events)]
    return join(_visits(events[ends], depth[ends], state[ends], rows, length), first, rows, queries, keys)


def _tiles(cuts: Integers, end: int) -> Integers:
    """Return where tiles begin that are cut at `cuts` and have SIDE rows at most."""
    counts = -(-np.diff(np.append(cuts, end)) // SIDE)
    inside = np.arange(np.sum(counts)) - np.repeat(np.cumsum(counts) - counts, counts)
    first: Integers = np.repeat(cuts, counts) + SIDE * inside
    return first


def _visits(events: Integers, depth: Integers, state: NDArray[np.uint64], rows: Integers, length: int) -> Visits:
    """Return the visits of tiles whose rows come and go at `events`, tile (length + 1) + key; `depth` see what follows.

    `state` has their bits.
    """
    none = np.zeros(0, np.int64)
    if len(events) == 0:
        return Visits(none, none, none, none.astype(bool), NO_WORDS)
    tile = events // (length + 1)
    kind = np.where(depth == 0, 0, np.where(depth == rows[tile], 2, 1))
    starts = np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))
    begin, kind = events[starts], kind[starts]
    stop = np.append(begin[1:], begin[-1])
    tile = begin // (length + 1)
    bridge = (kind == 0) & (stop - begin <= GAP) & (stop // (length + 1) == tile)
    inside = (kind > 0) | bridge
    inside[-1] = False
    opens = inside & ~np.append(False, inside[:-1])
    closes = inside & ~np.append(inside[1:], False)
    low, high = begin[opens], stop[closes]  # of the stretches
    stretch = np.cumsum(opens) - 1
    rough = inside & (kind != 2)
    owner = stretch[rough]
    since, until = (begin[rough] - low[owner]) // SIDE, (stop[rough] - 1 - low[owner]) // SIDE
    counts = until - since + 1
    which = np.repeat(np.arange(len(counts)), counts)
    chunk = since[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    wide = length // SIDE + 2
    numbers = np.unique(owner[which] * wide + chunk)  # of the visits that need words
    owner, chunk = numbers // wide, numbers % wide
    cut_low = low[owner] + SIDE * chunk
    cut_high = np.minimum(cut_low + SIDE, high[owner])
    # what lies between them is seen by all rows
    full_low = np.concatenate([low, cut_high])
    full_high = np.concatenate([high, cut_low])
    by_low = np.argsort(full_low, kind="stable")
    by_high = np.argsort(full_high, kind="stable")
    full_low, full_high = full_low[by_low], full_high[by_high]
    there = full_low < full_high
    full_low, full_high = full_low[there], full_high[there]
    # words
    at = np.minimum(cut_low[:, None] + np.arange(SIDE), cut_high[:, None] - 1)
    words = state[np.searchsorted(events, at, side="right") - 1]
    words[at - cut_low[:, None] < np.arange(SIDE)] = 0
    tile = np.concatenate([full_low, cut_low]) // (length + 1)
    base = tile * (length + 1)
    partial = np.append(np.zeros(len(full_low), bool), np.ones(len(cut_low), bool))
    return Visits(
        tile, np.concatenate([full_low, cut_low]) - base, np.concatenate([full_high, cut_high]) - base, partial, words
    )
