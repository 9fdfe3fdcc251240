"""Rows as sets: runs of the columns that are not 0, and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import is_sparse, without_zeros
from kernattn._arrays.shapes import strips
from kernattn.ops.minwise.words import STEP, Words, mixed

ROOM = 2**22  # numbers of a dense block


class Sets(NamedTuple):
    """Sets of columns, one after the other; an empty one has a column that no row has, d, with the weight 1."""

    starts: NDArray[np.int64]  # (n + 1,)
    columns: NDArray[np.int64]  # (E,)
    weights: NDArray[Any]  # (E,)


def sets_of(x: Any, entries: int) -> Iterator[tuple[slice, Sets]]:
    """Yield places and sets of NumPy rows (n, d) in turn, or of CSR rows, about so many entries at a time."""
    if not is_sparse(x):
        for here in strips(x.shape[0], ROOM // x.shape[1]):
            rows = x[here]
            members = np.flatnonzero(rows)
            row, columns = np.divmod(members, x.shape[1])
            counts = np.bincount(row, minlength=len(rows))
            yield here, _filled(counts, columns, rows.reshape(-1)[members], x.shape[1])
        return
    x = without_zeros(x)
    starts = x.indptr.astype(np.int64)
    first = 0
    while first < x.shape[0]:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + entries, side="right")) - 1)
        own = slice(starts[first], starts[last])
        counts = np.diff(starts[first : last + 1])
        yield slice(first, last), _filled(counts, x.indices[own].astype(np.int64), x.data[own], x.shape[1])
        first = last


def _filled(counts: NDArray[np.int64], columns: NDArray[np.int64], weights: NDArray[Any], dim: int) -> Sets:
    """Return sets of so many members each, of which none is empty."""
    empty = counts == 0
    if empty.any():
        places = np.cumsum(counts)[empty]
        columns, weights = np.insert(columns, places, dim), np.insert(weights, places, np.ones(1, weights.dtype))
        counts = counts + empty
    return Sets(np.concatenate([[0], np.cumsum(counts)]), columns, weights)


def unary(sets: Sets) -> tuple[NDArray[np.int64], Words]:
    """Return starts and words of sets of bits and counts: a column with the count c is c members, its levels."""
    starts, columns, counts = sets
    words, many = mixed(columns.astype(np.uint32)), counts > 1
    if not many.any():
        return starts, words
    counts = counts.astype(np.int64)
    ends = np.cumsum(counts)
    level = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    words = np.repeat(words, counts) + level.astype(np.uint32) * np.uint32(STEP)
    return np.concatenate([[0], ends])[starts], np.where(level > 0, mixed(words), words)
