"""The Tanimoto kernel of CSR rows, of which no dense block is made where that is faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import Entries, entries_of, without_zeros
from kernattn._arrays.namespaces import Float64
from kernattn._arrays.shapes import strips
from kernattn._runtime.lazy_scipy import sparse
from kernattn.ops.minmax_csr import OP as MINMAX
from kernattn.ops.shared_bits import OP as SHARED_BITS

PAIR, ENTRY, WORD, NUMBER = 1.5e-9, 0.8e-9, 3e-10, 1.2e-10  # seconds of the loops and of dense blocks
BLOCK = 2**18  # entries of the matrix at a time
LARGE = 2.0**900  # numbers whose sums may be beyond float64


def shares_of(x: Any, y: Any, check: Callable[[str, Any], None]) -> Callable[[slice], NDArray[Any]] | None:
    """Return what makes some rows of the matrix of CSR rows x and y; None where dense blocks do it, or refuse it.

    Bits of many columns that are 1 are counted by words; else a row walks over the entries of its columns.
    """
    if x.dtype != y.dtype or x.shape[1] != y.shape[1]:
        return None
    same, x = y is x, without_zeros(x)
    y = x if same else without_zeros(y)
    check("x", x.data)
    check("y", y.data)
    n, k, d = x.shape[0], y.shape[0], x.shape[1]
    meeting = float(np.bincount(x.indices, minlength=d) @ np.bincount(y.indices, minlength=d).astype(float))
    by_entries, bits = PAIR * n * k + ENTRY * meeting, bool(np.all(x.data == 1) and np.all(y.data == 1))
    if bits and SHARED_BITS.choose(x.data) == "cpu" and by_entries > n * k * (PAIR + WORD * -(-d // 64)):
        return _by_words(x, y)
    far = max(float(np.max(rows.data, initial=0)) for rows in (x, y)) > LARGE
    return None if far or by_entries > NUMBER * n * k * d else _by_entries(x, y)


def _by_entries(x: Any, y: Any) -> Callable[[slice], NDArray[Any]]:
    rows, columns = entries_of(x), entries_of(y.tocsc())
    x_sums, y_sums = _sums(x), _sums(y)
    loop = MINMAX.implementation(x.data)

    def make(here: slice) -> NDArray[Any]:
        out = np.empty((here.stop - here.start, y.shape[0]), x.dtype)
        some = Entries(rows.values, rows.indices, rows.starts[here.start : here.stop + 1])
        loop(some, columns, x_sums[here], y_sums, out)
        return out

    return make


def _by_words(x: Any, y: Any) -> Callable[[slice], NDArray[Any]]:
    words, other = _words(x), _words(y)
    x_sums, y_sums = np.diff(x.indptr).astype(x.dtype), np.diff(y.indptr).astype(x.dtype)
    loop = SHARED_BITS.function("cpu")

    def make(here: slice) -> NDArray[Any]:
        out = np.empty((here.stop - here.start, y.shape[0]), x.dtype)
        for some in strips(len(out), BLOCK // y.shape[0]):
            block, own = out[some], slice(here.start + some.start, here.start + some.stop)
            loop(words[own], other, block)
            total = x_sums[own, None] + y_sums - block
            np.divide(block, total, out=block, where=total != 0)
            block[total == 0] = 1
        return out

    return make


def _words(x: Any) -> NDArray[np.uint64]:
    """Return rows of ones as bits in words of 64: different bits of a word add up."""
    bits = np.left_shift(np.uint64(1), (x.indices % 64).astype(np.uint64))
    words: NDArray[np.uint64] = sparse.csr_array(
        (bits, x.indices // 64, x.indptr), shape=(x.shape[0], -(-x.shape[1] // 64))
    ).toarray()
    return words


def _sums(x: Any) -> Float64:
    """Return the sums of rows, added up in the order of the loop, so that a row is exactly like itself."""
    sums: Float64 = x @ np.ones(x.shape[1])
    return sums
