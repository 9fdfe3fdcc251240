"""One pattern a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernattn._plans.parts import Part
from kernattn._runtime.checks import instance_of, shown
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._intervals import Intervals, Sees
from kernattn.errors import ParameterError

T = TypeVar("T")


@dataclass(frozen=True)
class PerHead(Pattern):
    """One pattern for each head."""

    patterns: tuple[Pattern, ...]

    @property
    def _static(self) -> bool:
        return all(pattern._static for pattern in self.patterns)

    def _take_one(self, heads: Iterator[tuple[T, ...]]) -> tuple[T, ...]:
        """Return the item of each pattern, which must be one for all heads."""
        result = []
        for number, own in enumerate(heads):
            if len(own) != 1:
                raise ParameterError(f"a pattern of per_head must be one for all heads; number {number} has {len(own)}")
            result.append(own[0])
        return tuple(result)

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        return self._take_one(pattern._parts(n, length, causal) for pattern in self.patterns)

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        return self._take_one(pattern._sees(n, length) for pattern in self.patterns)

    def _plain(self, n: int, length: int) -> tuple[Intervals, ...] | None:
        plain = [pattern._plain(n, length) for pattern in self.patterns]
        return None if None in plain else self._take_one(x for x in plain if x is not None)


def per_head(patterns: Sequence[Pattern]) -> Pattern:
    """Return the pattern by which head h sees what patterns[h] sees.

    Parameters
    ----------
    patterns : sequence of Pattern
        One for each head: the last of the leading axes.

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
