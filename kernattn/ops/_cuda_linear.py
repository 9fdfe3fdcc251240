"""What the CUDA siblings of linear attention share: columns of a block, leading axes, slabs, contiguous inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._array import Array
from kernattn.errors import ShapeError
from kernattn.ops import _cuda
from kernattn.ops.peaked import LogNormaliser, PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = [
    "LinearCode",
    "Side",
    "Slabs",
    "alike",
    "batch",
    "both_sides",
    "broadcast",
    "cut",
    "empty_state",
    "entries",
    "key_arguments",
    "lead_of",
    "linear_code",
    "merged_lead",
    "normalisers",
    "pointers",
    "side",
]

WIDEST = {"bf16_t": 128, "tf32_t": 128, "float": 64, "double": 32}  # columns of v whose sums fit the registers
WIDEST_IN_LITTLE = {"bf16_t": 128, "tf32_t": 64, "float": 64, "double": 32}  # and where shared memory is scarce
SLAB_TILES = 4  # least tiles of rows in a slab


@dataclass(frozen=True)
class LinearCode:
    """How a kernel of linear.cuh is compiled."""

    map: _cuda.MapCode
    value: str  # C type of v and of the outputs
    eb: int

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*self.map.defines, f"-DVALUE={self.value}", f"-DEB={self.eb}")

    @property
    def v_row(self) -> int:
        """Elements from one row of a tile of v to the next."""
        return _cuda.row_length(self.map.operand, self.eb)

    @property
    def phi_row(self) -> int:
        """Elements from one row of a tile of features to the next."""
        return _cuda.row_length(self.map.operand, _cuda.FB)


@dataclass(frozen=True)
class Slabs:
    """The rows of every sequence cut into slabs that are summarised apart."""

    count: int
    rows: int


def linear_code(map_code: _cuda.MapCode, dtype: str, e: int, limits: _cuda.Limits) -> LinearCode:
    """Return how kernels with values of `dtype`, (..., e), are compiled."""
    widest = (WIDEST if limits.roomy else WIDEST_IN_LITTLE)[map_code.operand]
    return LinearCode(map_code, _cuda.C_TYPES[dtype], _cuda.power_of_two(e, 32, widest))


def cut(n: int, wanted: int, tile: int) -> Slabs:
    """Return n rows cut into about `wanted` slabs, none of less than SLAB_TILES tiles but the last."""
    count = min(wanted, _cuda.ceil_div(n, SLAB_TILES * tile))
    rows = _cuda.ceil_div(_cuda.ceil_div(n, count), tile) * tile
    return Slabs(_cuda.ceil_div(n, rows), rows)


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or keys as the kernels take them."""

    rows: _cuda.Rows
    arguments: tuple[Any, ...]  # what Map is made of

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axes."""
        return tuple(self.rows.x.shape[:-2])

    @property
    def frequencies(self) -> int:
        """D."""
        return int(self.arguments[-2])


def side(
    x: Array | ScaledFeatures, spec: MapSpec | None, dtype: str, limits: _cuda.Limits, whole: bool = True
) -> tuple[Side, _cuda.MapCode]:
    """Return an op's input, and how its map is compiled beside values of `dtype`; see `take_rows` for `whole`."""
    rows = _cuda.take_rows(x, spec, _accumulator(dtype), whole)
    code = _map_code(rows, spec, dtype, rows.x.shape[-1], limits)
    return Side(rows, _cuda.map_arguments(spec, code, rows.x.shape[-1])), code


def both_sides(
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    dtype: str,
    limits: _cuda.Limits,
    normaliser: bool = False,
) -> tuple[Side, Side, _cuda.MapCode, int]:
    """Return queries, keys, how their maps are compiled, and whether these are 1 or 2; they must be `alike`."""
    queries = _cuda.take_rows(q, q_spec, _accumulator(dtype), normaliser)
    keys = _cuda.take_rows(k, k_spec, _accumulator(dtype))
    d_q, d_k = queries.x.shape[-1], keys.x.shape[-1]
    code = _map_code(keys, k_spec, dtype, max(d_q, d_k), limits)
    return (
        Side(queries, _cuda.map_arguments(q_spec, code, d_q)),
        Side(keys, _cuda.map_arguments(k_spec, code, d_k)),
        code,
        1 if q_spec is k_spec else 2,
    )


def alike(a: MapSpec | None, b: MapSpec | None) -> bool:
    """Can two maps run in one kernel: are they of one kind, and do both project or neither?"""
    if a is None or b is None:
        return a is b
    return a.kind == b.kind and (a.omega is None) == (b.omega is None)


def _accumulator(dtype: str) -> str:
    return "double" if dtype == "float64" else "float"


def _map_code(rows: _cuda.Rows, spec: MapSpec | None, dtype: str, d: int, limits: _cuda.Limits) -> _cuda.MapCode:
    return _cuda.map_code(dtype if spec is None else rows.dtype, spec, rows.per_feature, d, limits, rows.dtype)


def normalisers(shape: tuple[int, ...], dtype: Any, wanted: bool) -> LogNormaliser | None:
    """Return room for the normalisers of rows, where they are wanted."""
    import cupy

    return LogNormaliser(cupy.empty(shape, dtype=dtype), cupy.empty(shape, dtype=dtype)) if wanted else None


def pointers(parts: tuple[Array, ...] | None, count: int) -> tuple[Any, ...]:
    """Return the arrays, or null pointers."""
    return (_cuda.NULL,) * count if parts is None else tuple(parts)


def broadcast(x: Array, lead: tuple[int, ...], inner: int) -> Array:
    """Return x, contiguous, its leading axes broadcast to `lead`; the last `inner` axes are left as they are."""
    import cupy

    shape = (*lead, *x.shape[x.ndim - inner :])
    return cupy.ascontiguousarray(x if x.shape == shape else cupy.broadcast_to(x, shape))


def empty_state(lead: tuple[int, ...], features: int, peaks: int, e: int, accumulator: str) -> PeakedSum:
    """Return room for a state."""
    import cupy

    real = cupy.float64 if accumulator == "double" else cupy.float32
    return PeakedSum(
        cupy.empty((*lead, features, e), dtype=real),
        cupy.empty((*lead, features), dtype=real),
        cupy.empty((*lead, peaks), dtype=real),
    )


def batch(out: tuple[int, ...], queries: tuple[int, ...], keys: tuple[int, ...]) -> tuple[np.int32, ...]:
    """Return the leading axes of outputs merged into three: their sizes, three strides of queries, three of keys.

    A stride is 0 along the axes in which an operand is broadcast.
    """
    axes: list[list[int]] = []  # size, stride of queries, stride of keys
    strides = [1, 1]
    padded = [(1,) * (len(out) - len(lead)) + lead for lead in (queries, keys)]
    for axis in range(len(out) - 1, -1, -1):
        size = out[axis]
        own = [strides[i] if padded[i][axis] > 1 else 0 for i in range(2)]
        strides = [strides[i] * padded[i][axis] for i in range(2)]
        if size == 1:
            continue
        if axes and all(own[i] == axes[-1][1 + i] * axes[-1][0] for i in range(2)):
            axes[-1][0] *= size
        else:
            axes.append([size, *own])
    if len(axes) > 3:
        raise ShapeError(
            f"leading axes {queries} of q against {keys} of k alternate more than three times; reshape or broadcast q"
        )
    axes += [[1, 0, 0]] * (3 - len(axes))
    (size2, q2, k2), (size1, q1, k1), (size0, q0, k0) = axes
    return tuple(np.int32(x) for x in (size0, size1, size2, q0, q1, q2, k0, k1, k2))


def merged_lead(*leads: tuple[int, ...]) -> tuple[int, ...]:
    """Return what leading axes broadcast to."""
    return tuple(np.broadcast_shapes(*leads))


def lead_of(x: Array | None, inner: int) -> tuple[int, ...]:
    """Return the leading axes of an optional array, before its last `inner`."""
    return () if x is None else tuple(x.shape[: x.ndim - inner])


def entries(lead: tuple[int, ...]) -> int:
    """Return how many matrices leading axes hold."""
    return math.prod(lead)


def key_arguments(key_mask: Array | None, lead: tuple[int, ...]) -> Any:
    """Return the mask of keys (*lead, n) as bytes, or a null pointer."""
    import cupy

    return _cuda.NULL if key_mask is None else broadcast(key_mask, lead, 1).view(cupy.uint8)
