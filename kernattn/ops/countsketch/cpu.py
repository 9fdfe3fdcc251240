"""Count sketches by Numba: one pass over the entries of each row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import accumulation
from kernattn.ops.countsketch.loops import sketch_csr, sketch_dense

SECONDS = 1.5e-9  # of one entry added to its bucket


def countsketch(
    x: Array, index: NDArray[np.int64], weight: Float64, num_buckets: int, out: Array | None = None
) -> Array:
    """Return p sketches of each row, (n, p, num_buckets)."""
    given = x.data if sparse.issparse(x) else x
    dtype = accumulation(given)
    hashes = fixed(index, np.int64), fixed(weight, dtype)
    if out is None:
        out = np.empty((*x.shape[:-1], len(index), num_buckets), dtype)
    flat = out.reshape(-1, len(index), num_buckets)
    if sparse.issparse(x):
        entries = fixed(x.data, dtype), fixed(x.indices, x.indices.dtype), fixed(x.indptr, x.indptr.dtype)
        share(lambda low, high: sketch_csr(*entries, *hashes, flat, low, high), len(flat), SECONDS * len(index) * x.nnz)
    else:
        rows = fixed(x, dtype).reshape(-1, x.shape[-1])
        share(lambda low, high: sketch_dense(rows, *hashes, flat, low, high), len(flat), SECONDS * len(index) * x.size)
    return out


def fixed(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the array contiguous, in dtype and not writeable: the loops are compiled for such arrays only."""
    result = np.ascontiguousarray(array, dtype=dtype).view()
    result.flags.writeable = False
    return result
