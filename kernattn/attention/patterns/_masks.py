"""Patterns that someone has as arrays: a mask, or the stretch of keys of each query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from array_api_compat import is_array_api_obj as is_array
from numpy.typing import NDArray

from kernattn._arrays.namespaces import dtype_name, namespace, on_host
from kernattn._plans.parts import Part, dense, kept
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import MOST, array_of, shown
from kernattn.attention.patterns._base import Pattern, check_one_axis_of_heads, make_plan
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, Sees, whole_rows
from kernattn.errors import ParameterError


@dataclass(frozen=True, eq=False)
class _OfTokens(Pattern):
    """A pattern of given tokens; its plans are kept beside it, and go with it."""

    _long: ClassVar[bool] = True
    _kept: dict[tuple[int, int, bool], Plan] = field(default_factory=dict, repr=False, init=False)

    def _make_plan(self, n: int, length: int, causal: bool) -> Plan:
        if (n, length, causal) not in self._kept:
            self._kept[n, length, causal] = make_plan(self, n, length, causal)
        return self._kept[n, length, causal]


@dataclass(frozen=True, eq=False)
class Mask(_OfTokens):
    """mask[i, j]."""

    mask: NDArray[np.bool_]  # (heads, rows, l), of which the last rows are those of queries

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        return tuple((kept(dense(n, length, causal), sees),) for sees in self._sees(n, length))

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        rows, keys = self.mask.shape[1:]
        if length != keys or n > rows:
            raise ParameterError(f"the mask is for at most {rows} queries of {keys} tokens; got {n} of {length}")
        return tuple(self._of_head(own[rows - n :]) for own in self.mask)

    @staticmethod
    def _of_head(mask: NDArray[np.bool_]) -> Sees:
        return lambda rows, tokens: mask[rows, tokens]


@dataclass(frozen=True, eq=False)
class Stretches(_OfTokens, IntervalPattern):
    """low[i] <= j < high[i]."""

    low: Integers  # (heads, rows), of which the last are those of queries
    high: Integers

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        rows = self.low.shape[1]
        if n > rows:
            raise ParameterError(f"low and high are for at most {rows} queries; got {n}")
        ends = zip(self.low[:, rows - n :], self.high[:, rows - n :], strict=True)
        return tuple((Intervals(low[None], high[None], whole_rows(n)),) for low, high in ends)


def from_mask(mask: Any) -> Pattern:
    """Return mask[i, j]: any mask, such as PyTorch's `attn_mask` of bool.

    Tiles of 64 queries and 64 keys that nobody sees are skipped, so that time follows what a mask leaves; the mask
    itself is quadratic. Formulas (`local`, `documents` and the others, joined by ``|`` and ``&``) need no matrix.

    Parameters
    ----------
    mask : (n, l) or (heads, n, l) bool array
        True where query i sees key j, of any library; its numbers must be known. Attention wants the heads as its last
        leading axis. Further leading axes must be 1: where sequences differ, let them be heads.

    Returns
    -------
    Pattern
        For l tokens, of which the last n, or fewer, are queries.

    Raises
    ------
    ParameterError
        If it is no such array, or has more leading axes; by `plan`, for other tokens.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> seen = ka.patterns.from_mask(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1]], bool))
    >>> seen.plan(3).pairs
    4
    """
    given = array_of(mask) if isinstance(mask, np.generic) or not is_array(mask) else mask
    namespace(mask=given)
    dtype = dtype_name(given)
    if dtype != "bool" or given.ndim < 2 or 0 in given.shape:
        added = "; of one that is added to scores, give mask == 0" if "float" in dtype else ""
        raise ParameterError(
            f"mask must be bool (n, l) or (heads, n, l), True where a query sees a key; got {shown(mask)}{added}"
        )
    check_one_axis_of_heads("mask", tuple(given.shape[:-2]))
    own = np.array(on_host("mask", given)).reshape(-1, *given.shape[-2:])
    own.setflags(write=False)
    return Mask(own)


def from_intervals(low: Any, high: Any) -> Pattern:
    """Return low[i] <= j < high[i]: a stretch of keys for each query.

    Parameters
    ----------
    low, high : (n,) or (heads, n) integer array
        Where the stretch of each query begins and ends; ends may lie outside the keys, and an empty stretch sees
        nothing. Heads are the last leading axis of attention; further leading axes must be 1.

    Returns
    -------
    Pattern
        For n queries or fewer, the last ones of the tokens.

    Raises
    ------
    ParameterError
        If they are no integers, of two shapes, or have more leading axes; by `plan`, for more queries.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.from_intervals([0, 0, 2], [1, 2, 3]).plan(3).mask().astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    ends = [array_of(x) for x in (low, high)]
    if any(x.dtype.kind not in "iu" or x.ndim < 1 or x.size == 0 for x in ends) or ends[0].shape != ends[1].shape:
        raise ParameterError(
            f"low and high must be integers of one shape (n,) or (heads, n); got {shown(low)} and {shown(high)}"
        )
    check_one_axis_of_heads("low and high", ends[0].shape[:-1])
    own = [np.array(np.minimum(x, np.int64(MOST)), np.int64).reshape(-1, x.shape[-1]) for x in ends]
    for x in own:
        x.setflags(write=False)
    return Stretches(*own)
