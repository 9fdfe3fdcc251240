"""Sums of minima of sparse rows by Numba, rows shared among threads."""

from functools import partial
from typing import Any

from numpy.typing import NDArray

from kernattn._arrays.csr import Entries
from kernattn._arrays.namespaces import Float64
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import flat
from kernattn.ops.minmax_csr.loops import write_shares

SECONDS = 1e-9  # of a pair of rows


def minmax_csr(x: Entries, columns: Entries, x_sums: Float64, y_sums: Float64, out: NDArray[Any]) -> None:
    entries = [flat(a, a.dtype) for a in (*x, *columns, x_sums, y_sums)]
    share(partial(write_shares, *entries, out), len(out), SECONDS * out.size)
