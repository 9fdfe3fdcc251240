"""A window, and tokens that see all and are seen by all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._runtime.checks import shown
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, rows_at, whole_number, whole_rows
from kernattn.errors import ParameterError


@dataclass(frozen=True)
class Longformer(IntervalPattern):
    """A window among other tokens, and global ones in both directions."""

    left: int
    right: int
    tokens: tuple[int, ...]  # ascending
    dilation: tuple[int, ...]

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        if self.tokens and self.tokens[-1] >= length:
            raise ParameterError(f"tokens must be below l = {length}; got {self.tokens[-1]}")
        return tuple(self._head(n, length, step) for step in self.dilation)

    def _head(self, n: int, length: int, step: int) -> Head:
        first = len(self.tokens)
        if step == 1 and self.tokens == tuple(range(first)):
            at, cut = rows_at(n, length), max(0, first - (length - n))
            low, high = np.maximum(at - self.left, first), at + self.right + 1
            low[:cut], high[:cut] = first, length
            ends = np.full(n, first)
            cuts = np.array([0, cut]) if 0 < cut < n else None
            return (Intervals(np.stack([np.zeros_like(low), low]), np.stack([ends, high]), whole_rows(n), cuts=cuts),)
        tokens = np.array(self.tokens, np.int64)
        others = np.setdiff1d(np.arange(length), tokens)
        rows = others[others >= length - n] - (length - n)
        own = tokens[tokens >= length - n] - (length - n)
        parts = []
        if len(rows):
            parts.append(self._window(rows + length - n, others, step, length - n))
            if first:
                parts.append(_see_all(rows, tokens, first))
        if len(own):
            parts.append(_see_all(own, None, length))
        return tuple(parts)

    def _window(self, at: Integers, others: Integers, step: int, ahead: int) -> Intervals:
        """Return the window of tokens `at` among the others, each residue a stretch."""
        step, wide = min(step, int(others[-1]) + 1), int(others[-1]) + 1
        at = at[np.argsort(at % step, kind="stable")]
        keys = others[np.argsort(others % step, kind="stable")]
        order, residue = keys % step * wide + keys, at % step * wide
        low = np.searchsorted(order, residue + np.maximum(at - self.left, 0))
        high = np.searchsorted(order, residue + np.minimum(at + self.right, wide - 1), side="right")
        return Intervals(low[None], high[None], whole_rows(len(at)), at - ahead, keys)


def _see_all(rows: Integers, keys: Integers | None, end: int) -> Intervals:
    return Intervals(np.zeros((1, 1), np.int64), np.full((1, 1), end), np.array([0, len(rows)]), rows, keys)


def longformer(
    left: int, tokens: Sequence[int], *, right: int | None = None, dilation: int | Sequence[int] = 1
) -> Pattern:
    r"""Return a window :math:`-left \le j - i \le right`, and global tokens, which see all and are seen by all.

    Beltagy et al. (2020). Projections of their own for global rows are the caller's.

    Parameters
    ----------
    left : int
        How far the window reaches back.
    tokens : sequence of int
        The global tokens.
    right : int, optional
        How far the window reaches ahead; `left` by default.
    dilation : int or sequence of int
        The distance of the keys in the window, for all heads or for each.

    Returns
    -------
    Pattern
        For more tokens than the largest of `tokens`.

    Raises
    ------
    ParameterError
        If a number is not allowed; by `plan`, if a token is beyond the last.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.longformer(1, [0], right=0).plan(4).mask().astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 0, 1, 1]])
    """
    left = whole_number("left", left)
    right = left if right is None else whole_number("right", right)
    given: Any = tokens
    try:
        numbers = sorted({whole_number("each of tokens", each) for each in given})
    except TypeError:
        raise ParameterError(f"tokens must be a sequence of integers; got {shown(tokens)}") from None
    steps: Any = dilation if isinstance(dilation, tuple | list) or getattr(dilation, "ndim", False) else (dilation,)
    dilations = tuple(whole_number("dilation", each, 1) for each in steps)
    if not dilations:
        raise ParameterError(f"dilation must be an integer, or one a head; got {shown(dilation)}")
    return Longformer(left, right, tuple(numbers), dilations)
