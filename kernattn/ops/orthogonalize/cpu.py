"""Orthonormal rows by Numba, blocks shared among threads, or by LAPACK's QR."""

from functools import partial
from math import prod

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops.orthogonalize.reference import by_qr


def orthogonalize(blocks: Array, method: str) -> Array:
    if method == "qr":
        return by_qr(blocks)
    from kernattn.ops._numba.tiles.layout import accumulation, flat, seconds_of
    from kernattn.ops.orthogonalize.loops import write_frames  # a draw by QR loads no compiler

    *lead, r, d = blocks.shape
    dtype, count = accumulation(blocks), prod(lead)
    out = np.empty(blocks.shape, dtype)
    frames = partial(write_frames, flat(blocks, dtype), r, d, out.reshape(-1))
    share(frames, count, seconds_of(12.0 * count * r * r * d, 0, dtype.itemsize))
    return out.astype(blocks.dtype, copy=False)
