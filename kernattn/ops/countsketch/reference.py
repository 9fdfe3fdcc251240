"""Count sketches as a product with the hash matrix."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, constant, namespace
from kernattn._runtime.lazy_scipy import sparse


def countsketch(
    x: Array, index: NDArray[np.int64], weight: Float64, num_buckets: int, out: Array | None = None
) -> Array:
    """Return p sketches of each row, (n, p, num_buckets)."""
    copies, dim = index.shape
    rows = np.tile(np.arange(dim), copies)
    columns = (index + num_buckets * np.arange(copies)[:, None]).ravel()
    hashes: Any = sparse.csr_array((weight.ravel(), (rows, columns)), shape=(dim, copies * num_buckets))
    if is_sparse(x):
        sketch = (x @ hashes.astype(accumulation_dtype(np, x))).toarray()  # (n, p M)
    else:
        xp = namespace(x=x)
        dtype = accumulation_dtype(xp, x)
        sketch = xp.matmul(xp.astype(x, dtype, copy=False), constant(xp, hashes.toarray(), dtype, x))
    sketch = namespace(sketch=sketch).reshape(sketch, (*x.shape[:-1], copies, num_buckets))
    if out is None:
        return sketch
    out[...] = sketch
    return out
