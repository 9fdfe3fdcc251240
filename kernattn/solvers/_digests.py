"""Which fold a row is in: a function of its inputs, so that neither order nor parts change it, nor copies leak.

Targets have no part in it: a fold would lack all copies of a row with one label, and the others hold just those with
another.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, to_numpy64
from kernattn._arrays.shapes import strips

FOLDS = 5


def folds_of(x: Array) -> NDArray[np.int64]:
    """Return the folds (n,) of rows."""
    return (digests_of(x) % np.uint64(FOLDS)).astype(np.int64)


def digests_of(x: Array) -> NDArray[np.uint64]:
    """Return digests (n,) of the rows' numbers in float32."""
    return _digests(x, _bits)


def distinct(x: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each row that differs comes first, (r,), and which of these each row is, (n,).

    Digests order them, so that neither the order of rows nor copies have a part in it.
    """
    digests, first, which = np.unique(digests_of_all_bits(x), return_index=True, return_inverse=True)
    order = np.lexsort((digests, digests_of(x)[first]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[which]


def distinct_pairs(
    x: Array, targets: Float64, shares: Float64, most: int
) -> tuple[NDArray[np.int64], Float64, NDArray[np.uint64]]:
    """Return where up to `most` pairs of a row and its targets (n, c) come first, and their shares and digests.

    So copies are shares, and rows without any are left out. A pair of each row that differs comes before second ones
    of any: many copies of few rows would leave the others out. Digests order them, so that targets have no say in
    which are left out.
    """
    there = np.flatnonzero(shares)
    digests = digests_of(x)[there]
    marks = _mix(_mix(digests_of_all_bits(x)) ^ digests_of_all_bits(targets))[there]
    order = np.lexsort((marks, digests))
    digests, marks = digests[order], marks[order]
    row = np.append(True, digests[1:] != digests[:-1])
    begin = np.flatnonzero(row | np.append(True, marks[1:] != marks[:-1]))
    place = np.arange(len(begin))
    place -= np.maximum.accumulate(np.where(row[begin], place, 0))  # among the pairs of its row
    chosen = np.argsort(place, kind="stable")[:most]
    sums = np.add.reduceat(shares[there[order]], begin)
    return there[order[begin[chosen]]], sums[chosen], digests[begin[chosen]]


def digests_of_all_bits(x: Array) -> NDArray[np.uint64]:
    """Return digests (n,) of the rows' numbers in float64."""
    return _digests(x, _all_bits)


def _digests(x: Array, bits: Callable[[Any], NDArray[np.uint64]]) -> NDArray[np.uint64]:
    keys = _mix(np.arange(1, x.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    sums = np.empty(x.shape[0], np.uint64)
    for here in strips(x.shape[0]):
        if is_sparse(x):
            sums[here] = _add_stored(x[here], bits, keys)
        else:
            sums[here] = bits(to_numpy64(x[here, ...])) @ keys
    return _mix(sums)


def _add_stored(x: Any, bits: Callable[[Any], NDArray[np.uint64]], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the sums of CSR rows, in which several numbers of one entry are their sum."""
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    terms = sparse.csr_array((bits(x.data) * keys[x.indices], x.indices, x.indptr), shape=x.shape)
    sums: NDArray[np.uint64] = terms @ np.ones(x.shape[1], np.uint64)
    return sums


def _bits(values: Any) -> NDArray[np.uint64]:
    with np.errstate(over="ignore", under="ignore"):
        numbers: NDArray[np.float32] = values.astype(np.float32) + np.float32(0)  # -0 is 0
    return numbers.view(np.uint32).astype(np.uint64)


def _all_bits(values: Any) -> NDArray[np.uint64]:
    numbers: NDArray[np.float64] = values.astype(np.float64) + 0.0
    whole = numbers.view(np.uint64)
    return whole ^ (whole >> np.uint64(32))  # the low bits of most numbers are 0, and a product keeps low ones


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finaliser of each number (Steele, Lea & Flood 2014)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
