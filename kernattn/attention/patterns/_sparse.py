"""The two patterns of the Sparse Transformer, causal by themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernattn._runtime.checks import shown
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Intervals, rows_at, whole_number, whole_rows
from kernattn.attention.patterns._windows import LONG, by_residue
from kernattn.errors import ParameterError


@dataclass(frozen=True)
class Strided(IntervalPattern):
    """-window < j - i <= 0, or j <= i and (i - j) % stride = 0."""

    window: int
    stride: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        at = rows_at(n, length)
        near = Intervals((at - self.window + 1)[None], (at + 1)[None], whole_rows(n))
        step = min(self.stride, length)
        keys, begins = by_residue(np.arange(length), step)
        rows, cuts = by_residue(at, step)
        at = at[rows]
        first = begins[at % step]
        last = first + (at - self.window - at % step) // step + 1  # what the window does not see
        own_tiles = np.unique(cuts[:-1]) if n // step >= LONG else None
        return ((near, Intervals(first[None], last[None], whole_rows(n), rows, keys, own_tiles)),)


@dataclass(frozen=True)
class Fixed(IntervalPattern):
    """j <= i, and i // block = j // block or j % block >= block - columns."""

    block: int
    columns: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        at, tokens = rows_at(n, length), np.arange(length)
        begin = at // self.block * self.block
        near = Intervals(begin[None], (at + 1)[None], whole_rows(n))
        keys = tokens[tokens % self.block >= self.block - self.columns]
        runs = np.flatnonzero(np.append(True, begin[1:] != begin[:-1]))
        ends = begin[runs] // self.block * self.columns
        return ((near, Intervals(np.zeros_like(ends)[None], ends[None], np.append(runs, n), None, keys)),)


def strided(window: int, stride: int) -> Pattern:
    r"""Return :math:`-window < j - i \le 0`, or :math:`j \le i` and :math:`(i - j) \bmod stride = 0`.

    Child et al. (2019), as their code has it. It is causal by itself; with a window of `stride` tokens two layers
    reach every earlier token.

    Parameters
    ----------
    window : int
        How many of the last tokens are seen, the row's own among them.
    stride : int
        The distance of those that are seen before.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.strided(2, 2).plan(5).mask().astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [0, 1, 1, 1, 0],
           [1, 0, 1, 1, 1]])
    """
    return Strided(whole_number("window", window), whole_number("stride", stride, 1))


def fixed(block: int, columns: int) -> Pattern:
    r"""Return :math:`j \le i` where i // block = j // block, or :math:`j \bmod block \ge block - columns`.

    Child et al. (2019): the last columns of each block summarise it for all later rows. It is causal by itself, and two
    layers reach every earlier token.

    Parameters
    ----------
    block : int
        How many tokens a block has.
    columns : int
        How many of its last ones all later rows see, 1 to `block`.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.fixed(3, 1).plan(5).mask().astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [0, 0, 1, 1, 0],
           [0, 0, 1, 1, 1]])
    """
    block, columns = whole_number("block", block, 1), whole_number("columns", columns, 1)
    if columns > block:
        raise ParameterError(f"columns must be at most block, {block}; got {shown(columns)}")
    return Fixed(block, columns)
