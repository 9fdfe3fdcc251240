"""What a pattern is, how it becomes a plan, and the algebra of patterns: what either sees, what both see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, final

import numpy as np

from kernattn._arrays.graphs import in_a_graph
from kernattn._plans.parts import Part, kept
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import boolean, instance_of, positive_integer
from kernattn.attention.patterns._intervals import Integers, Intervals, Sees, part_from
from kernattn.errors import ParameterError

T = TypeVar("T")


class Pattern(ABC):
    """Which keys each query sees: a frozen value that attention takes as `pattern`.

    `a | b` sees what either sees, `a & b` what both see. Queries are the last n of l tokens, as in causal attention.
    """

    _long: ClassVar[bool] = False
    """Whether it has a number for each token or block, which graphs do not guard one by one."""

    @abstractmethod
    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        """Return disjoint parts, for all heads or for each."""

    @abstractmethod
    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        """Return the functions that say which keys a row sees without `causal`, for all heads or for each."""

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
        return self._make_plan(n, length, boolean("causal", causal))

    def _make_plan(self, n: int, length: int, causal: bool) -> Plan:
        return _plan_once(self, n, length, causal)

    @final
    @in_a_graph
    def _graph_name(self, n: int, length: int, causal: bool) -> str:
        """Return the name by which graphs know the plan."""
        return self.plan(n, length, causal=causal)._graph_name(n, length, False)

    def __or__(self, other: Any) -> Pattern:
        """Return the pattern that sees what either sees."""
        instance_of("the other side of |", other, Pattern)
        return Union(self, other)

    def __and__(self, other: Any) -> Pattern:
        """Return the pattern that sees what both see."""
        instance_of("the other side of &", other, Pattern)
        return Intersection(self, other)


def make_plan(pattern: Pattern, n: int, length: int, causal: bool) -> Plan:
    """Return the plan, made as for the first time."""
    heads = pattern._parts(n, length, causal)
    return Plan("parts", n, length, tuple(tuple(part for part in parts if len(part.visits)) for parts in heads))


_plan_once = lru_cache(maxsize=32)(make_plan)


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
        return tuple(_sweep(x, y, length, self._depth()) for x, y in _pair_heads(a, b))

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        plain = self._plain(n, length)
        if plain is not None:
            return tuple((part_from(x, n, length, causal),) for x in plain)
        parts = _pair_heads(self.a._parts(n, length, causal), self.b._parts(n, length, causal))
        sees = _pair_heads(self.a._sees(n, length), self.b._sees(n, length))
        return tuple(self._narrow(*x, *y) for x, y in zip(parts, sees, strict=True))

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        pairs = _pair_heads(self.a._sees(n, length), self.b._sees(n, length))
        return tuple(self._join(*pair) for pair in pairs)

    @abstractmethod
    def _depth(self) -> int:
        """Return how many of the two have to see a key."""

    @abstractmethod
    def _join(self, a: Sees, b: Sees) -> Sees:
        """Return the function that says which keys a row sees, of those of the two."""

    @abstractmethod
    def _narrow(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        """Return disjoint parts."""


class Union(_Pair):
    """What either sees."""

    def _depth(self) -> int:
        return 1

    def _join(self, a: Sees, b: Sees) -> Sees:
        return lambda rows, tokens: a(rows, tokens) | b(rows, tokens)

    def _narrow(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        return (*a, *(kept(part, lambda rows, tokens: ~sees_a(rows, tokens)) for part in b))


class Intersection(_Pair):
    """What both see."""

    def _depth(self) -> int:
        return 2

    def _join(self, a: Sees, b: Sees) -> Sees:
        return lambda rows, tokens: a(rows, tokens) & b(rows, tokens)

    def _narrow(self, a: tuple[Part, ...], b: tuple[Part, ...], sees_a: Sees, sees_b: Sees) -> tuple[Part, ...]:
        if sum(part.visited for part in b) < sum(part.visited for part in a):
            a, sees_b = b, sees_a
        return tuple(kept(part, sees_b) for part in a)


def check_one_axis_of_heads(name: str, lead: tuple[int, ...]) -> None:
    """Raise where leading axes are more than one of heads: which of them tells sequences apart is not known."""
    if any(size != 1 for size in lead[:-1]):
        raise ParameterError(
            f"{name} must have one leading axis, of heads; got leading axes {lead} (where sequences differ, let them "
            "be heads: reshape queries, keys and values to (batch * heads, n, d), and repeat what their heads share)"
        )


def _pair_heads(a: tuple[T, ...], b: tuple[T, ...]) -> Iterator[tuple[T, T]]:
    """Yield what two patterns have for each head, one of theirs for all."""
    if 1 != len(a) != len(b) != 1:
        raise ParameterError(f"patterns must have as many heads, or one for all; got {len(a)} and {len(b)}")
    for head in range(max(len(a), len(b))):
        yield a[head if len(a) > 1 else 0], b[head if len(b) > 1 else 0]


def _sweep(a: Intervals, b: Intervals, length: int, depth: int) -> Intervals:
    """Return where intervals of both are `depth` deep."""
    runs = a.runs if np.array_equal(a.runs, b.runs) else np.union1d(a.runs, b.runs)
    low, high = (np.concatenate(x) for x in zip(*(_split_runs(x, runs, length) for x in (a, b)), strict=True))
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


def _split_runs(x: Intervals, runs: Integers, length: int) -> tuple[Integers, Integers]:
    """Return intervals for runs that cut those they are of."""
    which = np.searchsorted(x.runs, runs[:-1], side="right") - 1
    return np.clip(x.low[:, which], 0, length), np.clip(x.high[:, which], 0, length)
