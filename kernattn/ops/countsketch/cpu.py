"""Count sketches by Numba: one pass over the entries of each row."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import is_sparse, numbers_of
from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import accumulation, flat
from kernattn.ops.countsketch.loops import sketch_csr, sketch_dense

SECONDS = 1.5e-9  # of one entry added to its bucket


def countsketch(
    x: Array, index: NDArray[np.int64], weight: Float64, num_buckets: int, out: Array | None = None
) -> Array:
    given = numbers_of(x)
    dtype = accumulation(given)
    hashes = flat(index, np.int64, index.shape), flat(weight, dtype, weight.shape)
    if out is None:
        out = np.empty((*x.shape[:-1], len(index), num_buckets), dtype)
    sketches = out.reshape(-1, len(index), num_buckets)
    if is_sparse(x):
        entries = flat(x.data, dtype), flat(x.indices, x.indices.dtype), flat(x.indptr, x.indptr.dtype)
        share(partial(sketch_csr, *entries, *hashes, sketches), len(sketches), SECONDS * len(index) * x.nnz)
    else:
        rows = flat(x, dtype, (-1, x.shape[-1]))
        share(partial(sketch_dense, rows, *hashes, sketches), len(sketches), SECONDS * len(index) * x.size)
    return out
