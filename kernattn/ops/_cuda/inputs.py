"""The rows a map is applied to, and arrays of one type, as the kernels take them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.row_scale import row_scale
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.constants import NULL, upload_once
from kernattn.ops._cuda.sizes import C_TYPES, REALS


@dataclass(frozen=True, eq=False)
class MapInput:
    """The rows a map is applied to, contiguous: raw ones, features, or their logarithms."""

    x: Array  # (..., n, d)
    scale: Array  # (..., n) given log scales per row, or a null pointer
    per_feature: bool
    dtype: str

    def broadcast(self, lead: tuple[int, ...]) -> MapInput:
        """Return the rows with their leading axes broadcast to `lead`."""

        def spread(x: Array, inner: int) -> Array:
            shape = (*lead, *x.shape[x.ndim - inner :])
            return x if x is NULL or x.shape == shape else cupy.ascontiguousarray(cupy.broadcast_to(x, shape))

        return MapInput(spread(self.x, 2), spread(self.scale, 1), self.per_feature, self.dtype)


def map_input(x: Array | ScaledFeatures, spec: MapSpec | None, accumulator: str, whole: bool = True) -> MapInput:
    """Return the rows of an op's input: an array where there is a spec, else features in float32 or float64.

    Log scales that the kernels cannot make are given, but where they cancel: not `whole`.
    """
    real = "float64" if accumulator == "double" else "float32"
    if spec is not None:
        scale = NULL
        if whole and spec.scales_apart:
            wide = cupy.asarray(x, dtype=real)
            scale = cupy.ascontiguousarray(row_scale(namespace(x=wide), wide, spec, _constant)[..., 0])
        return MapInput(cupy.ascontiguousarray(x), scale, spec.per_feature, dtype_name(x))
    values, log_scale = x
    m = math.prod(np.broadcast_shapes(values.shape[-1:], log_scale.shape[-1:]))
    if log_scale.shape[-1] == 1 and values.shape[-1] == m:
        scale = cupy.ascontiguousarray(log_scale[..., 0].astype(real, copy=False))
        return MapInput(cupy.ascontiguousarray(values.astype(real, copy=False)), scale, False, real)
    return MapInput(cupy.ascontiguousarray(log_scale.astype(real, copy=False)), NULL, True, real)


def of_one_type(accumulator: str, *arrays: Array | None) -> tuple[str, list[Any]]:
    """Return a C type, and arrays of it, contiguous: of their own where that is one, else of the accumulator's."""
    dtypes = {dtype_name(x) for x in arrays if x is not None}
    kind = C_TYPES[dtypes.pop()] if len(dtypes) == 1 else accumulator
    real = None if kind != accumulator else REALS[accumulator]

    def put(x: Array | None) -> Any:
        if x is None:
            return NULL
        return cupy.ascontiguousarray(x if real is None else x.astype(real, copy=False))

    return kind, [put(x) for x in arrays]


def _constant(_: Any, values: NDArray[Any], dtype: Any, __: Array) -> Any:
    return upload_once(values, np.dtype(dtype).name)
