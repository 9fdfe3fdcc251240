"""What is added to the scores of pairs of tokens, as the loops take it."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn.ops._numba.tiles.heads import number_heads
from kernattn.ops._numba.tiles.layout import Rows, flat, no_rows, rows

Numbers = NDArray[np.int64]

_INTEGERS = np.dtype(np.int64)

NONE = flat(np.zeros(0), _INTEGERS)
"""Stands for no heads, and for keys as they stand."""


class Pairs(NamedTuple):
    """A bias (heads, n, l) of pairs, which of its heads each read has, the keys of a part, and how many there are."""

    bias: Rows
    heads: Numbers
    keys: Numbers
    length: int

    def of_part(self, heads: Numbers, keys: Numbers | None) -> tuple[Any, ...]:
        """Return them for the reads of a part, as a loop takes them: a plain tuple."""
        return self.bias, heads, NONE if keys is None else flat(keys, _INTEGERS), self.length


def pairs_of(bias: Array | None, dtype: np.dtype[Any]) -> Pairs:
    """Return a bias (..., n, l) before it is known which heads read it; without one there are no heads."""
    return _no_pairs(dtype) if bias is None else Pairs(rows(bias, dtype), NONE, NONE, bias.shape[-1])


@lru_cache(maxsize=8)
def _no_pairs(dtype: np.dtype[Any]) -> Pairs:
    return Pairs(no_rows(dtype), NONE, NONE, 0)


def lead_of(bias: Array | None) -> tuple[int, ...] | None:
    """Return the leading axes of a bias, None without one."""
    return None if bias is None else tuple(bias.shape[:-2])


def heads_read(lead: tuple[int, ...] | None, out_lead: tuple[int, ...], outputs: Numbers) -> Numbers:
    """Return the heads of a bias of leading axes `lead` that are read beside some heads of outputs, flat."""
    if lead is None:
        return NONE
    return flat(np.ascontiguousarray(number_heads(lead, out_lead)).reshape(-1)[outputs], _INTEGERS)
