"""What the CUDA siblings of count sketches share: the columns of every bucket, and how many rows a block takes."""

from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.constants import upload
from kernattn.ops._cuda.sizes import BYTES, pieces

STAGE = 49_152  # bytes of rows that a block of many short ones holds


@dataclass(frozen=True, eq=False)
class Lists:
    """The columns of every bucket, side by side, on the device."""

    first: Any  # (p buckets + 1,) int32, where each bucket's columns begin
    column: Any  # (p d,) int32
    weight: Any  # (p d,)


@dataclass(frozen=True)
class Staging:
    """The rows of a block."""

    group: int
    shared_bytes: int  # for the rows; 0: they are read where they are

    @property
    def inside(self) -> bool:
        """Are the rows in shared memory?"""
        return self.shared_bytes > 0


def staging(rows: int, d: int, wanted: int, accumulator: str, room: int) -> Staging:
    """Return up to `wanted` rows of d numbers, in shared memory where a row fits `room` bytes."""
    group = max(1, min(rows, wanted, min(STAGE, room) // (d * BYTES[accumulator])))
    shared_bytes = pieces((group * d, accumulator))
    if shared_bytes <= room:
        return Staging(group, shared_bytes)
    return Staging(min(rows, wanted), 0)


_lists: dict[tuple[int, int, int, int, str], tuple[Any, Lists]] = {}


def lists(index: NDArray[np.int64], weight: Float64, num_buckets: int, dtype: str) -> Lists:
    """Return the lists of hashes (p, d) on the current device, cached for as long as both host arrays live."""
    key = (id(index), id(weight), num_buckets, int(cupy.cuda.Device().id), dtype)
    if key not in _lists:
        order = np.argsort(index, axis=1, kind="stable")
        buckets = index + num_buckets * np.arange(len(index))[:, None]
        counts = np.bincount(buckets.ravel(), minlength=len(index) * num_buckets)
        first = np.concatenate([[0], np.cumsum(counts)])
        weights = np.take_along_axis(weight, order, axis=1)

        def put(values: Any, dtype: str) -> Any:
            return upload(np.ascontiguousarray(values.ravel(), dtype=dtype))

        owners = tuple(ref(x, lambda _: _lists.pop(key, None)) for x in (index, weight))
        _lists[key] = (owners, Lists(put(first, "int32"), put(order, "int32"), put(weights, dtype)))
    return _lists[key][1]
