"""First tokens, and documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernattn._runtime.checks import array_of, shown
from kernattn.attention.patterns._base import Pattern, check_one_axis_of_heads
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, rows_at, whole_number, whole_rows
from kernattn.errors import ParameterError


@dataclass(frozen=True)
class Sinks(IntervalPattern):
    """j < count."""

    count: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        return ((Intervals(np.zeros((1, 1), int), np.full((1, 1), self.count), np.array([0, n])),),)


@dataclass(frozen=True)
class Prefix(IntervalPattern):
    """j < length or j <= i."""

    length: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        high = np.maximum(rows_at(n, length) + 1, self.length)[None]
        return ((Intervals(np.zeros_like(high), high, whole_rows(n)),),)


@dataclass(frozen=True)
class Documents(IntervalPattern):
    """ids[i] = ids[j]."""

    ids: tuple[tuple[int, ...], ...]  # of all heads, or of each
    _long: ClassVar[bool] = True

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        if len(self.ids[0]) != length:
            raise ParameterError(
                f"documents is for l = {len(self.ids[0])} tokens, as many as its ids; got l = {length}"
            )
        return tuple((self._of(np.array(ids), n, length),) for ids in self.ids)

    @staticmethod
    def _of(ids: Integers, n: int, length: int) -> Intervals:
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        runs = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        ends = np.append(runs[1:], length)
        rows = order[order >= length - n] - (length - n)
        sizes = np.add.reduceat((order >= length - n).astype(np.int64), runs)
        there = sizes > 0
        low, high, bounds = runs[there], ends[there], np.append(0, np.cumsum(sizes[there]))
        if np.array_equal(order, np.arange(length)):
            return Intervals(low[None], high[None], bounds)
        return Intervals(low[None], high[None], bounds, rows, order)


def sinks(count: int) -> Pattern:
    r"""Return :math:`j < count`: the first tokens.

    Xiao et al. (2024): `sinks(4) | local(512, 0)` is attention with sinks and a window.

    Parameters
    ----------
    count : int
        How many tokens.

    Examples
    --------
    >>> import kernattn as ka
    >>> (ka.patterns.sinks(1) | ka.patterns.local(1, 0)).plan(4).mask().astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 0, 1, 1]])
    """
    return Sinks(whole_number("count", count))


def prefix(length: int) -> Pattern:
    r"""Return :math:`j < length` or :math:`j \le i`: all see the prefix whole, and what stands before them.

    Raffel et al. (2020). It is causal by itself, but for the prefix.

    Parameters
    ----------
    length : int
        How many tokens the prefix has.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.prefix(2).plan(3).mask().astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    return Prefix(whole_number("length", length))


def documents(ids: Any) -> Pattern:
    """Return ids[i] = ids[j]: documents packed into one sequence, in stretches or scattered.

    Parameters
    ----------
    ids : (l,) or (heads, l) sequence or array of int
        The document of each token. Attention wants the heads as its last leading axis; further leading axes must be 1.

    Returns
    -------
    Pattern
        For l tokens.

    Raises
    ------
    ParameterError
        If they are no such integers, or have more leading axes; by `plan`, for another number of tokens.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.documents([0, 0, 7]).plan(3).mask().astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    array = array_of(ids)
    if array.ndim < 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ParameterError(f"ids must be integers (l,) or (heads, l), one for each token; got {shown(ids)}")
    check_one_axis_of_heads("ids", array.shape[:-1])
    return Documents(tuple(map(tuple, array.reshape(-1, array.shape[-1]).tolist())))
