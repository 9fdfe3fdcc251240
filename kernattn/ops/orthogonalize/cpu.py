"""Orthonormal rows by Numba, blocks shared among threads, or by LAPACK's QR."""

from math import prod

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops.orthogonalize.reference import by_qr


def orthogonalize(blocks: Array, method: str) -> Array:
    """Return orthonormal rows, (..., r, d), in the dtype of blocks."""
    if method == "qr":
        return by_qr(blocks)
    from kernattn.ops._numba.tiles.layout import FLOPS_PER_SECOND, accumulation, flat
    from kernattn.ops.orthogonalize.loops import write_frames  # a draw by QR loads no compiler

    *lead, r, d = blocks.shape
    dtype, count = accumulation(blocks), prod(lead)
    out = np.empty(blocks.shape, dtype)
    x, y = flat(blocks, dtype), out.reshape(-1)
    seconds = 12.0 * count * r * r * d / FLOPS_PER_SECOND * dtype.itemsize / 4
    share(lambda low, high: write_frames(x, r, d, y, low, high), count, seconds)
    return out.astype(blocks.dtype, copy=False)
