"""Parameters of NumPy that have 16 bits: kept so, and widened as they are read, for rows are float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, dtype_name, namespace, to_numpy64
from kernattn._runtime.extras import numpy_dtype
from kernattn.ops.dispatch import missing

DTYPES = "bfloat16", "float16", "float32", "float64"
"""What parameters may be kept in."""

BLOCK = 1 << 20
"""Weights that are widened at a time, at most."""


def has_16_bits(array: Array) -> bool:
    """Whether this is an array of NumPy with floats of 16 bits; other libraries compute with theirs."""
    return isinstance(array, np.ndarray) and dtype_name(array) in ("bfloat16", "float16")


def host_floats(array: Array) -> NDArray[Any]:
    """Return an array of any library as one of NumPy: as it is, or in float64 where it is another's."""
    return array if isinstance(array, np.ndarray) else to_numpy64(array)


def cast(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return an array in a dtype; a vector in float32 where the dtype has 16 bits. What it cannot hold is infinite."""
    wanted = numpy_dtype("float32" if array.ndim < 2 and dtype in DTYPES[:2] else dtype)
    with np.errstate(over="ignore", under="ignore"):
        return np.ascontiguousarray(array, wanted)


def row_dtype(beside: Array) -> str:
    """Return the dtype of rows beside parameters."""
    return "float32" if has_16_bits(beside) else dtype_name(beside)


def widen(array: Array) -> Array:
    """Return floats of 16 bits as float32, and others as they are."""
    if not has_16_bits(array):
        return array
    if dtype_name(array) == "bfloat16" or missing("cpu") is not None:
        return array.astype(np.float32)
    from kernattn.ops._numba.tiles.layout import widen_rows as by_loop  # NumPy takes ten times as long

    return by_loop(np.ascontiguousarray(array))


def multiply(x: Array, weight: Array) -> Array:
    """Return x W; a W of 16 bits is widened block by block."""
    if not has_16_bits(weight):
        return namespace(x=x).matmul(x, weight)
    depth, columns = weight.shape
    out: NDArray[Any] = np.empty((*x.shape[:-1], columns), np.float32)
    width = max(1, BLOCK // depth)
    for begin in range(0, columns, width):
        block = slice(begin, begin + width)
        out[..., block] = np.matmul(x, widen(weight[:, block]))
    return out
