"""Arguments in one dtype for array operations that begin anew where loops give up, and results in their own again.

No number of another rounding gets in.
"""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._sums.cotangents import MapCotangent
from kernattn.ops._numba.tiles.layout import accumulation, has_bits, narrow, widen_rows


def widen(dtype: np.dtype[Any], *given: Any) -> list[Any]:
    """Return arrays of floats in a dtype, those in tuples too; all else as it is."""
    return [_wide(dtype, x) for x in given]


def _wide(dtype: np.dtype[Any], x: Any) -> Any:
    if isinstance(x, tuple):
        return type(x)(*(_wide(dtype, part) for part in x))
    if isinstance(x, np.ndarray) and has_bits(x, dtype):
        return widen_rows(x)
    return x.astype(dtype, copy=False) if isinstance(x, np.ndarray) and x.dtype.kind not in "biu" else x


def narrow_cotangents(cotangent: MapCotangent, x: Array) -> MapCotangent:
    """Return cotangents in the dtypes that those of rows x have."""
    dx, *numbers = cotangent
    dtype = accumulation(x)
    return MapCotangent(narrow(dx, x.dtype), *(None if y is None else narrow(y, dtype) for y in numbers))
