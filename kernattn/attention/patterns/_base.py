"""What a pattern is: intervals of keys for every row, in orders of tokens; and how it becomes a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from kernattn._check import MOST, boolean, instance_of, positive_integer, shown
from kernattn._graphs import in_a_graph
from kernattn.errors import ParameterError
from kernattn.ops.intervals import part_of, upto
from kernattn.ops.parts import Part, Tokens
from kernattn.ops.plan import Plan

__all__ = [
    "Head",
    "Integers",
    "IntervalPattern",
    "Intervals",
    "Pattern",
    "Sees",
    "part_from",
    "planned_anew",
    "rows_at",
    "whole_number",
    "whole_rows",
]

Integers: TypeAlias = NDArray[np.int64]


class Intervals(NamedTuple):
    """Disjoint intervals of keys: rows runs[r] to runs[r + 1] of some queries see low[:, r] to high[:, r] of some keys.

    Ends may stand outside the keys. Queries and keys are None where they stand in their own order; keys ascend in every
    interval.
    """

    low: Integers  # (m, R)
    high: Integers
    runs: Integers  # (R + 1,)
    queries: Tokens = None
    keys: Tokens = None
    cuts: Integers | None = None  # where tiles had better begin


Head: TypeAlias = tuple[Intervals, ...]


Sees: TypeAlias = Callable[[Integers, Integers], NDArray[np.bool_]]
"""Says of rows and tokens, which broadcast, whether the rows see the tokens."""


class Pattern(ABC):
    """Which keys each query sees: a frozen value that attention takes as `pattern`.

    `a | b` sees what either sees, `a & b` what both see. Queries are the last n of l tokens, as in causal attention.
    """

    @abstractmethod
    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        """Return disjoint parts, for all heads or for each."""

    @abstractmethod
    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        """Return what the plan without `causal` admits, for all heads or for each."""

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        """Return intervals of tokens as they stand, for all heads or for each; None where that takes other orders."""
        return None

    @property
    def _static(self) -> bool:
        """Do earlier tokens that a row sees stay the same when tokens follow?"""
        return True

    def plan(self, n: int, l: int | None = None, *, causal: bool = False) -> Plan:  # noqa: E741
        """Return the plan for n queries of l tokens, n by default; it is made once, and kept.

        Parameters
        ----------
        n : int
            The number of queries, the last ones of the tokens.
        l : int, optional
            The number of tokens.
        causal : bool
            Whether a query sees only what stands at or before it, besides.

        Returns
        -------
        Plan
            `pairs` are allowed in a head and `visited` computed; `reach(layers)` is the share of earlier tokens
            that so many layers reach, `plot(ax)` draws it, and `mask()` is the matrix.

        Raises
        ------
        ParameterError
            If there are more queries than tokens, or the pattern is for another length.
        """
        n = positive_integer("n", n)
        length = n if l is None else positive_integer("l", l)
        if n > length:
            raise ParameterError(f"a pattern needs queries that are the last n of l tokens; got n = {n}, l = {length}")
        return self._planned(n, length, boolean("causal", causal))

    def _planned(self, n: int, length: int, causal: bool) -> Plan:
        return _kept(self, n, length, causal)

    @final
    @in_a_graph
    def _named(self, n: int, length: int, causal: bool) -> str:
        """Return the name by which graphs know the plan."""
        return self.plan(n, length, causal=causal)._named(n, length, False)

    def __or__(self, other: Any) -> Pattern:
        """Return the pattern that sees what either sees."""
        from kernattn.attention.patterns._combine import Union

        instance_of("the other side of |", other, Pattern)
        return Union(self, other)

    def __and__(self, other: Any) -> Pattern:
        """Return the pattern that sees what both see."""
        from kernattn.attention.patterns._combine import Intersection

        instance_of("the other side of &", other, Pattern)
        return Intersection(self, other)


def planned_anew(pattern: Pattern, n: int, length: int, causal: bool) -> Plan:
    """Return the plan, made as for the first time."""
    heads = pattern._parts(n, length, causal)
    return Plan("parts", n, length, tuple(tuple(part for part in parts if len(part.visits)) for parts in heads))


_kept = lru_cache(maxsize=32)(planned_anew)


def rows_at(n: int, length: int) -> Integers:
    """Return the token at which each of n rows stands."""
    return np.arange(length - n, length)


def whole_rows(n: int) -> Integers:
    """Return runs of one row each."""
    return np.arange(n + 1)


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int, which must be an integer, `least` at least."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= int(value) <= MOST:
        raise ParameterError(f"{name} must be an integer from {least} to 2**31 - 1; got {shown(value)}")
    return int(value)


def part_from(x: Intervals, n: int, length: int, causal: bool) -> Part:
    """Return intervals as a part of a plan."""
    low, high, runs = x.low, x.high, x.runs
    if causal:
        which = np.repeat(np.arange(len(runs) - 1), np.diff(runs))
        low, high, runs = low[:, which], high[:, which], whole_rows(int(runs[-1]))
    size = length if x.keys is None else len(x.keys)
    low, high = np.clip(low, 0, size), np.clip(high, 0, size)
    if causal:
        rows = np.arange(runs[-1]) if x.queries is None else x.queries
        high = upto(low, high, rows + length - n, x.keys)
    return part_of(low, high, runs, size, cuts=x.cuts, queries=x.queries, keys=x.keys)


class IntervalPattern(Pattern):
    """A pattern of disjoint intervals in some orders."""

    @abstractmethod
    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        """Return disjoint intervals, for all heads or for each."""

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        return tuple(tuple(part_from(x, n, length, causal) for x in head) for head in self._heads(n, length))

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        return tuple(_admits(head, n, length) for head in self._heads(n, length))

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        heads = self._heads(n, length)
        return tuple(head[0] for head in heads) if all(map(_is_plain, heads)) else None


def _is_plain(head: Head) -> bool:
    return len(head) == 1 and head[0].queries is None and head[0].keys is None


def _admits(head: Head, n: int, length: int) -> Sees:
    """Return the function that says whether intervals join rows and tokens."""
    tables = []
    for x in head:
        which = np.repeat(np.arange(len(x.runs) - 1), np.diff(x.runs))
        row, key = _inverse(x.queries, n), _inverse(x.keys, length)
        tables.append((x, np.where(row < 0, -1, which[row]), key))

    def seen(rows: Integers, tokens: Integers) -> NDArray[np.bool_]:
        found = np.zeros(np.broadcast_shapes(rows.shape, tokens.shape), bool)
        for x, run, key in tables:
            r, at = run[rows], key[tokens]
            there = (r >= 0) & (at >= 0)
            for low, high in zip(x.low, x.high, strict=True):
                found |= there & (low[r] <= at) & (at < high[r])
        return found

    return seen


def _inverse(tokens: Tokens, size: int) -> Integers:
    """Return where each token stands, -1 where it does not."""
    if tokens is None:
        return np.arange(size)
    place = np.full(size, -1)
    place[tokens] = np.arange(len(tokens))
    return place
