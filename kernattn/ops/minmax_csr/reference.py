"""Sums of minima of sparse rows in NumPy, a row of the matrix at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import Entries
from kernattn._arrays.namespaces import Float64


def minmax_csr(x: Entries, columns: Entries, x_sums: Float64, y_sums: Float64, out: NDArray[Any]) -> None:
    """Write the matrix (n, k)."""
    for i, (begin, end) in enumerate(zip(x.starts, x.starts[1:], strict=False)):
        held = x.indices[begin:end]
        first, counts = columns.starts[held], np.diff(columns.starts)[held]
        places = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        minima = np.minimum(np.repeat(x.values[begin:end], counts), columns.values[places])
        shared = np.bincount(columns.indices[places], minima, len(y_sums))
        total = x_sums[i] + y_sums - shared
        out[i] = np.divide(shared, total, out=np.ones_like(total), where=total != 0)
