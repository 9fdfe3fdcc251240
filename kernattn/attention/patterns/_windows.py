"""Windows around each token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, rows_at, whole_number, whole_rows

LONG = 64  # tokens of a residue from which on tiles begin with it


def by_residue(tokens: Integers, step: int) -> tuple[Integers, Integers]:
    """Return the order that sorts ascending tokens by their residue, and where each residue begins, (step + 1,)."""
    residue = tokens % step
    return np.argsort(residue, kind="stable"), np.searchsorted(np.sort(residue), np.arange(step + 1))


@dataclass(frozen=True)
class Local(IntervalPattern):
    """-left <= j - i <= right, (j - i) % dilation = 0."""

    left: int
    right: int
    dilation: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        at = rows_at(n, length)
        if self.dilation == 1:
            return ((Intervals((at - self.left)[None], (at + self.right + 1)[None], whole_rows(n)),),)
        step = min(self.dilation, length)
        keys, begins = by_residue(np.arange(length), step)
        rows, cuts = by_residue(at, step)
        at = at[rows]
        first, last = begins[at % step], begins[at % step + 1]
        own = first + at // step  # where a row stands among the keys
        low, high = np.maximum(first, own - self.left // step), np.minimum(last, own + self.right // step + 1)
        own_tiles = np.unique(cuts[:-1]) if n // step >= LONG else None
        return ((Intervals(low[None], high[None], whole_rows(n), rows, keys, own_tiles),),)


@told_keywords
def local(left: int, right: int | None = None, *, dilation: int = 1) -> Pattern:
    r"""Return a window: :math:`-left \le j - i \le right` and :math:`(j - i) \bmod dilation = 0`.

    Beltagy et al. (2020). A row of a dilated window sees left // dilation + right // dilation + 1 keys.

    Parameters
    ----------
    left : int
        How far it reaches back.
    right : int, optional
        How far it reaches ahead; `left` by default.
    dilation : int
        The distance of the keys that it sees.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.local(1).plan(4).mask().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    left = whole_number("left", left)
    right = left if right is None else whole_number("right", right)
    return Local(left, right, whole_number("dilation", dilation, 1))
