"""Arguments in one dtype for array operations that begin anew where loops give up, and results in their own again.

No number of another rounding gets in.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._sums.cotangents import MapCotangent
from kernattn.ops._numba.tiles.layout import accumulation, has_bits, narrow, settled, widen_rows


def widen(dtype: np.dtype[Any], *given: Any) -> list[Any]:
    """Return arrays of floats in a dtype, those in tuples too; all else as it is."""
    return [_wide(dtype, x) for x in given]


def _wide(dtype: np.dtype[Any], x: Any) -> Any:
    if isinstance(x, tuple):
        return type(x)(*(_wide(dtype, part) for part in x))
    if isinstance(x, np.ndarray) and has_bits(x, dtype):
        return widen_rows(x)
    return x.astype(dtype, copy=False) if isinstance(x, np.ndarray) and x.dtype.kind not in "biu" else x


BLOCK = 1 << 16  # numbers that are widened at a time


def blocks_of(*given: Array) -> Iterator[list[Array]]:
    """Yield some rows (r, c) at a time of arrays (..., c) of as many rows, those of 16 bits as float32."""
    flat = [x.reshape(-1, x.shape[-1]) for x in given]
    step = max(1, BLOCK // flat[0].shape[-1])
    for low in range(0, len(flat[0]), step):
        yield [_wide(accumulation(x), x[low : low + step]) for x in flat]


def row_dots(a: Array, b: Array) -> NDArray[Any]:
    """Return the inner products of rows (..., c), (...)."""
    dots = [np.vecdot(*some) for some in blocks_of(a, b)]
    return np.concatenate(dots).reshape(a.shape[:-1]) if dots else np.zeros(a.shape[:-1], accumulation(a))


def settled_cotangents(cotangent: MapCotangent, x: Array) -> MapCotangent:
    """Return cotangents as `narrow_cotangents` does, those of rows in the memory of these: nobody else may hold it."""
    dx, *numbers = cotangent
    dtype = accumulation(x)
    return MapCotangent(settled(dx, x.dtype), *(None if y is None else narrow(y, dtype) for y in numbers))


def narrow_cotangents(cotangent: MapCotangent, x: Array) -> MapCotangent:
    """Return cotangents in the dtypes that those of rows x have."""
    dx, *numbers = cotangent
    dtype = accumulation(x)
    return MapCotangent(narrow(dx, x.dtype), *(None if y is None else narrow(y, dtype) for y in numbers))
