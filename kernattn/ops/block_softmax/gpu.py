"""Exact attention in CUDA: tiles of queries against tiles of keys, tensor cores for 16-bit types."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.errors import BackendUnavailable
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.axes import batch, broadcast, key_arguments, lead_of, merged_lead
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.sizes import C_TYPES, ceil_div, pieces, power_of_two, row_length
from kernattn.ops.plan import Plan

__all__ = ["Launch", "block_softmax", "launch"]


@dataclass(frozen=True)
class Launch:
    """One launch of the kernel `block_softmax`."""

    defines: tuple[str, ...]
    accumulator: str
    grid: tuple[int, int]
    threads: int
    shared_bytes: int


def launch(entries: int, n: int, d: int, e: int, dtype: str, limits: runtime.Limits) -> Launch:
    """Return the launch for outputs (entries, n, e) of `dtype`."""
    accumulator = "double" if dtype == "float64" else "float"
    kind = C_TYPES[dtype]
    element = kind if dtype == "float16" and limits.capability >= 80 else operand(dtype, limits.capability)
    warps = 2 if element == "double" else 4
    rows = 16 * warps
    small = element in ("half_t", "bf16_t")
    db = power_of_two(d, 16, 128 if small else 32)
    eb = power_of_two(e, 32, 128 if small else 32 if element == "double" else 64)
    tile = row_length(element, db)
    shared_bytes = pieces(
        (rows * tile, element),
        (rows * tile, element),
        (rows * row_length(element, eb), element),
        (rows * row_length(element, rows), element),
        (rows, "float"),
    )
    defines = (
        f"-DINPUT={kind}",
        f"-DVALUE={kind}",
        f"-DOPERAND={element}",
        "-DSPLIT=0",
        f"-DDB={db}",
        f"-DEB={eb}",
        f"-DWARPS={warps}",
    )
    return Launch(defines, accumulator, (entries * ceil_div(n, rows), ceil_div(e, eb)), 32 * warps, shared_bytes)


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None = None
) -> tuple[Array, Array]:
    """Return the outputs and the log normalisers."""
    if plan.kind == "parts" or key_bias is not None:
        raise BackendUnavailable("backend 'gpu' takes neither a pattern nor key_bias; backend='reference' takes both")
    import cupy

    (n, d), (length, e) = q.shape[-2:], v.shape[-2:]
    key_lead = merged_lead(k.shape[:-2], v.shape[:-2], lead_of(key_mask, 1))
    lead = merged_lead(q.shape[:-2], key_lead)
    q = cupy.ascontiguousarray(q)
    k, v = broadcast(k, key_lead, 2), broadcast(v, key_lead, 2)
    how = launch(math.prod(lead), n, d, e, dtype_name(q), runtime.limits())
    real = np.float64 if how.accumulator == "double" else np.float32
    out = cupy.empty((*lead, n, e), dtype=q.dtype)
    lse = cupy.empty((*lead, n), dtype=real)
    function = runtime.kernel("block_softmax", "block_softmax", how.defines)
    sizes = (np.int64(n), np.int64(length), np.int32(d), np.int32(e), np.int32(plan.kind == "causal"))
    strides = batch(lead, q.shape[:-2], key_lead)
    arguments = (q, k, v, key_arguments(key_mask, key_lead), out, lse, real(scale), *sizes, *strides)
    runtime.start(function, how.grid, how.threads, how.shared_bytes, arguments)
    return out, lse
