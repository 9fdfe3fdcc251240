"""Leading axes: what they broadcast to, and how kernels find their way through them."""

from functools import lru_cache
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.errors import ShapeError
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.constants import NULL


def merged_lead(*leads: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading axes of the broadcast of all."""
    return tuple(np.broadcast_shapes(*leads))


def lead_of(x: Array | None, inner: int) -> tuple[int, ...]:
    """Return the leading axes of an optional array, before its last `inner`."""
    return () if x is None else tuple(x.shape[: x.ndim - inner])


def broadcast(x: Array, lead: tuple[int, ...], inner: int) -> Array:
    """Return x, contiguous, its leading axes broadcast to `lead`; the last `inner` axes are left as they are."""
    shape = (*lead, *x.shape[x.ndim - inner :])
    return cupy.ascontiguousarray(x if x.shape == shape else cupy.broadcast_to(x, shape))


def key_arguments(key_mask: Array | None, lead: tuple[int, ...]) -> Any:
    """Return the mask of keys (*lead, n) as bytes, or a null pointer."""
    return NULL if key_mask is None else broadcast(key_mask, lead, 1).view(cupy.uint8)


@lru_cache(512)
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
