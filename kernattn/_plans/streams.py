"""What a plan leaves out, as streams of tokens: the keys before and after what each row sees, entering in order.

Where every row of a plan sees one stretch of keys, low_i <= j < high_i, and the ends never go back, the keys left out
are those that have entered before the row's turn: j < low_i from the front, and j >= high_i from the back. A stream is
the order in which keys enter and queries read, a key and a query a token. For a window it is a lag: query i stands
beside key low_i - 1. Keys of the window are never summed, so that nothing has to be taken off.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.parts import SIDE, SLAB, Part, visits_of
from kernattn._plans.plan import Plan

Integers = NDArray[np.int64]


class Pick(NamedTuple):
    """Which row stands at each place: a slice of rows with so many empty places about it, or any rows, -1 for none."""

    before: int
    start: int
    stop: int
    after: int
    rows: Integers | None = None

    @property
    def missing(self) -> NDArray[np.bool_] | None:
        """Which places are empty, None where none is."""
        if self.rows is not None:
            return self.rows < 0 if np.any(self.rows < 0) else None
        if self.before == self.after == 0:
            return None
        none = np.ones(self.before + self.stop - self.start + self.after, bool)
        none[self.before : self.before + self.stop - self.start] = False
        return none


class Stream(NamedTuple):
    """Tokens of a key and a query each; either may be missing. A reversed one counts rows from the back."""

    reverse: bool
    queries: Pick  # the query of each token
    keys: Pick
    following: Pick  # the query of each token, or the next one that there is
    token_of_query: Pick
    token_of_key: Pick


class Streams(NamedTuple):
    """The streams that have any token, and whether all rows see what stands beside them."""

    streams: tuple[Stream, ...]
    adjoins: bool  # does each row's stretch hold the row's own place, or end beside it?


@lru_cache(maxsize=32)
def streams_of(plan: Plan, causal: bool, begun: bool) -> Streams | None:
    """Return the streams of what a plan leaves out; None of a plan whose rows do not see one stretch each, in order.

    What is causal has no stream from the back. Where sums have `begun` before the first key, rows read them, too.
    """
    stretches = stretches_of(plan)
    if stretches is None:
        return None
    low, high = stretches
    own = np.arange(plan.n) + plan.length - plan.n
    if np.any(np.diff(low) < 0) or (causal and np.any(high != own + 1)) or np.any(np.diff(high) < 0):
        return None
    sides = [_stream(low, plan.length, begun, reverse=False)]
    if not causal:
        sides.append(_stream((plan.length - high)[::-1], plan.length, False, reverse=True))
    adjoins = bool(np.all((low <= own + 1) & (high >= own)))
    return Streams(tuple(side for side in sides if side is not None), adjoins)


def stretches_of(plan: Plan) -> tuple[Integers, Integers] | None:
    """Return the first key that each row sees and the end, (n,) each; None where a row, or a head, is another.

    A row that sees nothing has an empty stretch behind its own place, at the last n of all places.
    """
    if plan.kind != "parts" or len(plan.heads) != 1:
        return None
    low, high = np.full(plan.n, plan.length), np.zeros(plan.n, np.int64)
    count = np.zeros(plan.n, np.int64)
    for part in plan.heads[0]:
        _add_part(part, low, high, count)
    own = np.arange(plan.n) + plan.length - plan.n
    low, high = np.where(count == 0, own + 1, low), np.where(count == 0, own + 1, high)
    return (low, high) if np.array_equal(high - low, count) else None


def _add_part(part: Part, low: Integers, high: Integers, count: Integers) -> None:
    """Add what rows see of a part to their first keys, ends and counts."""
    tile, first, end, _, words = visits_of(part)
    places = np.arange(SIDE)
    for at in range(0, len(tile), SLAB):
        some = slice(at, at + SLAB)
        keys = np.minimum(first[some, None] + places, end[some, None] - 1)
        keys = (keys if part.keys is None else part.keys[keys])[..., None]
        bits = np.ascontiguousarray(words[some]).astype("<u8").view(np.uint8).reshape(*words[some].shape, 8)
        seen = np.unpackbits(bits, axis=-1, bitorder="little").astype(bool)  # (V, key, row)
        seen &= (first[some, None] + places < end[some, None])[..., None]
        rows = part.tiles[tile[some], 0][:, None] + places
        rows = np.where(places < part.tiles[tile[some], 1][:, None], rows, 0)
        rows = rows if part.queries is None else part.queries[rows]
        np.minimum.at(low, rows, np.min(np.where(seen, keys, len(low) + np.max(keys) + 1), axis=1))
        np.maximum.at(high, rows, np.max(np.where(seen, keys + 1, 0), axis=1))
        np.add.at(count, rows, np.sum(seen, axis=1))


def _stream(counts: Integers, length: int, begun: bool, *, reverse: bool) -> Stream | None:
    """Return the stream in which query i comes once counts[i] keys have entered; counts never fall.

    Queries before the first key are left out unless sums have begun, and keys that come too late always.
    """
    n, skipped = len(counts), 0 if begun else int(np.searchsorted(counts, 0, side="right"))
    if skipped == n:
        return None
    arriving = np.diff(counts[skipped:], prepend=0)
    ends = np.cumsum(np.maximum(arriving, 1)) - 1  # the token of each query
    total = int(ends[-1]) + 1
    key = np.arange(counts[-1])
    reader = np.searchsorted(counts[skipped:], key, side="right")  # the first that sees a key
    key_tokens = ends[reader] - (counts[skipped:][reader] - 1 - key)
    of_queries = np.full(n, -1)
    of_queries[skipped:] = ends
    of_keys = np.full(length, -1)
    of_keys[: len(key)] = key_tokens
    queries, keys = np.full(total, -1), np.full(total, -1)
    queries[ends], keys[key_tokens] = np.arange(skipped, n), key
    following = skipped + np.searchsorted(ends, np.arange(total))
    return Stream(reverse, *map(_pick, (queries, keys, following, of_queries, of_keys)))


def _pick(rows: Integers) -> Pick:
    """Return a slice where rows follow each other with empty places about them only."""
    there = np.flatnonzero(rows >= 0)
    if len(there) == 0:
        return Pick(len(rows), 0, 0, 0)
    begin, end = int(there[0]), int(there[-1]) + 1
    inside = rows[begin:end]
    if np.array_equal(inside, np.arange(inside[0], inside[0] + len(inside))):
        return Pick(begin, int(inside[0]), int(inside[-1]) + 1, len(rows) - end)
    rows = np.ascontiguousarray(rows)
    rows.setflags(write=False)
    return Pick(0, 0, 0, 0, rows)
