"""Intervals of keys for every row, in orders of tokens, and how they become a part of a plan."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.intervals import cut_at_last, part_of
from kernattn._plans.parts import Part, Tokens
from kernattn._runtime.checks import MOST, shown
from kernattn.errors import ParameterError

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
        high = cut_at_last(low, high, rows + length - n, x.keys)
    return part_of(low, high, runs, size, cuts=x.cuts, queries=x.queries, keys=x.keys)
