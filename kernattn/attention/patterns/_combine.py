"""Patterns made of patterns: what either sees, what both see, and one a head."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kernattn._check import instance_of, shown
from kernattn.attention.patterns._base import Integers, Intervals, Pattern, Sees, part_from
from kernattn.errors import ParameterError
from kernattn.ops.parts import Part, kept

__all__ = ["Intersection", "PerHead", "Union", "per_head"]

T = TypeVar("T")


@dataclass(frozen=True)
class _Pair(Pattern):
    """Two patterns: swept together where both are of tokens as they stand, else parts that bits narrow."""

    a: Pattern
    b: Pattern

    @property
    def _static(self) -> bool:
        return self.a._static and self.b._static

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        a, b = self.a._plain(n, length), self.b._plain(n, length)
        if a is None or b is None:
            return None
        return tuple(_swept(x, y, n, length, self._depth()) for x, y in _matched(a, b))

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        plain = self._plain(n, length)
        if plain is not None:
            return tuple((part_from(x, n, length, causal),) for x in plain)
        parts = _matched(self.a._parts(n, length, causal), self.b._parts(n, length, causal))
        sees = _matched(self.a._sees(n, length), self.b._sees(n, length))
        return tuple(self._narrowed(*x, *y) for x, y in zip(parts, sees, strict=True))

    @abstractmethod
    def _depth(self) -> int:
        """Return how many of the two have to see a key."""

    @abstractmethod
    def _narrowed(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        """Return disjoint parts."""


class Union(_Pair):
    """What either sees."""

    def _depth(self) -> int:
        return 1

    def _narrowed(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        return (*a, *(kept(part, lambda rows, tokens: ~sees_a(rows, tokens)) for part in b))

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        pairs = _matched(self.a._sees(n, length), self.b._sees(n, length))
        return tuple(lambda rows, tokens, a=a, b=b: a(rows, tokens) | b(rows, tokens) for a, b in pairs)


class Intersection(_Pair):
    """What both see."""

    def _depth(self) -> int:
        return 2

    def _narrowed(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        if sum(part.visited for part in b) < sum(part.visited for part in a):
            a, sees_b = b, sees_a
        return tuple(kept(part, sees_b) for part in a)

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        pairs = _matched(self.a._sees(n, length), self.b._sees(n, length))
        return tuple(lambda rows, tokens, a=a, b=b: a(rows, tokens) & b(rows, tokens) for a, b in pairs)


def _matched(a: tuple[T, ...], b: tuple[T, ...]) -> Iterator[tuple[T, T]]:
    """Yield what two patterns have for each head, one of theirs for all."""
    if 1 != len(a) != len(b) != 1:
        raise ParameterError(f"patterns must have as many heads, or one for all; got {len(a)} and {len(b)}")
    for head in range(max(len(a), len(b))):
        yield a[head if len(a) > 1 else 0], b[head if len(b) > 1 else 0]


def _swept(a: Intervals, b: Intervals, n: int, length: int, depth: int) -> Intervals:
    """Return where intervals of both are `depth` deep."""
    runs = a.runs if np.array_equal(a.runs, b.runs) else np.union1d(a.runs, b.runs)
    low, high = (np.concatenate(x) for x in zip(*(_of_runs(x, runs, length) for x in (a, b)), strict=True))
    high = np.maximum(low, high)
    events = np.concatenate([low, high])
    steps = np.concatenate([np.ones_like(low), -np.ones_like(high)])
    order = np.lexsort((-steps, events), axis=0)  # what adjoins stays one
    events = np.take_along_axis(events, order, axis=0)
    after = np.cumsum(np.take_along_axis(steps, order, axis=0), axis=0)
    before = after - np.take_along_axis(steps, order, axis=0)
    begins, ends = (after >= depth) & (before < depth), (after < depth) & (before >= depth)
    low, high = (np.sort(np.where(x, events, length), axis=0) for x in (begins, ends))
    most = max(1, int(np.max(np.sum(begins, axis=0))))
    return Intervals(low[:most], high[:most], runs)


def _of_runs(x: Intervals, runs: Integers, length: int) -> tuple[Integers, Integers]:
    """Return intervals for runs that cut those they are of."""
    which = np.searchsorted(x.runs, runs[:-1], side="right") - 1
    return np.clip(x.low[:, which], 0, length), np.clip(x.high[:, which], 0, length)


@dataclass(frozen=True)
class PerHead(Pattern):
    """One pattern for each head."""

    patterns: tuple[Pattern, ...]

    @property
    def _static(self) -> bool:
        return all(pattern._static for pattern in self.patterns)

    def _each(self, found: Iterator[tuple[T, ...]]) -> tuple[T, ...]:
        result = []
        for number, own in enumerate(found):
            if len(own) != 1:
                raise ParameterError(f"a pattern of per_head must be one for all heads; number {number} has {len(own)}")
            result.append(own[0])
        return tuple(result)

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        return self._each(pattern._parts(n, length, causal) for pattern in self.patterns)

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        return self._each(pattern._sees(n, length) for pattern in self.patterns)

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        plain = [pattern._plain(n, length) for pattern in self.patterns]
        return None if None in plain else self._each(x for x in plain if x is not None)


def per_head(patterns: Sequence[Pattern]) -> Pattern:
    """Return the pattern by which head h sees what patterns[h] sees.

    Parameters
    ----------
    patterns : sequence of Pattern
        One for each head: the last of the leading axes.

    Returns
    -------
    Pattern
        A frozen value.

    Raises
    ------
    ParameterError, DTypeError
        If there is none, or one of them is something else.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.per_head([ka.patterns.local(1), ka.patterns.local(2)]).plan(4).pairs
    12
    """
    given: Any = patterns
    if not isinstance(given, tuple | list) or not given:
        raise ParameterError(f"patterns must be a list of one or more patterns; got {shown(patterns)}")
    for pattern in given:
        instance_of("each of patterns", pattern, Pattern)
    return PerHead(tuple(given))
