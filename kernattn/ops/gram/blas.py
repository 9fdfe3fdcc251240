"""Sums of outer products of features by BLAS: a block of features at a time, added to one triangle of G in place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import get_blas_funcs

from kernattn._maps.spec import MapSpec
from kernattn.ops._numba.tiles.layout import accumulation
from kernattn.ops.features.cpu import features

ROWS = 2048  # of a block of features
TILE = 256  # side of what is mirrored at a time


def add_blocks(
    x: NDArray[Any], y: NDArray[Any], spec: MapSpec | None, total: NDArray[Any], cross: NDArray[Any]
) -> None:
    """Write phi^T phi to total (M, M), whose numbers lie row by row, and phi^T y to cross (M, c)."""
    own = accumulation(x)
    syrk, gemm = get_blas_funcs(("syrk", "gemm"), dtype=total.dtype)
    sums = np.zeros(total.shape, total.dtype).T
    others = np.zeros(cross.shape[::-1], total.dtype).T
    for first in range(0, len(x), ROWS):
        phi = x[first : first + ROWS].astype(own, copy=False)
        phi = phi if spec is None else features(phi, spec)
        across = np.ascontiguousarray(phi, total.dtype).T  # (M, rows)
        sums = syrk(1.0, across, beta=1.0, c=sums, overwrite_c=True)
        if cross.size:
            values = y[first : first + ROWS].astype(total.dtype, copy=False)
            others = gemm(1.0, across, values, beta=1.0, c=others, overwrite_c=True)
    cross[...] = others
    _mirror(sums.T, total)


def _mirror(lower: NDArray[Any], whole: NDArray[Any]) -> None:
    """Write the symmetric matrix of which one triangle is given, zeros above it."""
    for i in range(0, len(whole), TILE):
        here, past = slice(i, i + TILE), slice(i + TILE, None)
        whole[here, here] = lower[here, here] + np.tril(lower[here, here], -1).T
        whole[past, here] = lower[past, here]
        whole[here, past] = lower[past, here].T
