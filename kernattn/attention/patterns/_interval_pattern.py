"""What patterns of intervals share: one description makes the parts of a plan, and says what is seen."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.parts import Part, Tokens
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, Sees, part_from


class IntervalPattern(Pattern):
    """A pattern of disjoint intervals in some orders."""

    @abstractmethod
    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        """Return disjoint intervals, for all heads or for each."""

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        return tuple(tuple(part_from(x, n, length, causal) for x in head) for head in self._heads(n, length))

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        return tuple(_make_sees(head, n, length) for head in self._heads(n, length))

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        heads = self._heads(n, length)
        return tuple(head[0] for head in heads) if all(map(_is_plain, heads)) else None


def _is_plain(head: Head) -> bool:
    return len(head) == 1 and head[0].queries is None and head[0].keys is None


def _make_sees(head: Head, n: int, length: int) -> Sees:
    """Return the function that says whether intervals join rows and tokens."""
    tables = []
    for x in head:
        which = np.repeat(np.arange(len(x.runs) - 1), np.diff(x.runs))
        row, key = _invert(x.queries, n), _invert(x.keys, length)
        tables.append((x, np.where(row < 0, -1, which[row]), key))

    def mask_of(rows: Integers, tokens: Integers) -> NDArray[np.bool_]:
        sees = np.zeros(np.broadcast_shapes(rows.shape, tokens.shape), bool)
        for x, run, key in tables:
            r, at = run[rows], key[tokens]
            there = (r >= 0) & (at >= 0)
            for low, high in zip(x.low, x.high, strict=True):
                sees |= there & (low[r] <= at) & (at < high[r])
        return sees

    return mask_of


def _invert(tokens: Tokens, size: int) -> Integers:
    """Return where each token stands, -1 where it does not."""
    if tokens is None:
        return np.arange(size)
    place = np.full(size, -1)
    place[tokens] = np.arange(len(tokens))
    return place
