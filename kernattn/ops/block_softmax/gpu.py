"""Exact attention in CUDA: tiles of queries against tiles of keys, tensor cores for 16-bit types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda, _cuda_linear
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


def launch(entries: int, n: int, d: int, e: int, dtype: str, limits: _cuda.Limits) -> Launch:
    """Return the launch for outputs (entries, n, e) of `dtype`."""
    accumulator = "double" if dtype == "float64" else "float"
    kind = _cuda.C_TYPES[dtype]
    element = kind if dtype == "float16" and limits.capability >= 80 else _cuda.operand(dtype, limits.capability)
    warps = 2 if element == "double" else 4
    rows = 16 * warps
    small = element in ("half_t", "bf16_t")
    db = _cuda.power_of_two(d, 16, 128 if small else 32)
    eb = _cuda.power_of_two(e, 32, 128 if small else 32 if element == "double" else 64)
    tile = _cuda.row_length(element, db)
    shared_bytes = _cuda.pieces(
        (rows * tile, element),
        (rows * tile, element),
        (rows * _cuda.row_length(element, eb), element),
        (rows * _cuda.row_length(element, rows), element),
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
    return Launch(
        defines, accumulator, (entries * _cuda.ceil_div(n, rows), _cuda.ceil_div(e, eb)), 32 * warps, shared_bytes
    )


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None
) -> tuple[Array, Array]:
    """Return the outputs and the log normalisers."""
    import cupy

    (n, d), (length, e) = q.shape[-2:], v.shape[-2:]
    key_lead = _cuda_linear.merged_lead(k.shape[:-2], v.shape[:-2], _cuda_linear.lead_of(key_mask, 1))
    lead = _cuda_linear.merged_lead(q.shape[:-2], key_lead)
    q = cupy.ascontiguousarray(q)
    k, v = _cuda_linear.broadcast(k, key_lead, 2), _cuda_linear.broadcast(v, key_lead, 2)
    how = launch(_cuda_linear.entries(lead), n, d, e, dtype_name(q), _cuda.limits())
    real = np.float64 if how.accumulator == "double" else np.float32
    out = cupy.empty((*lead, n, e), dtype=q.dtype)
    lse = cupy.empty((*lead, n), dtype=real)
    function = _cuda.kernel("block_softmax", "block_softmax", how.defines)
    sizes = (np.int64(n), np.int64(length), np.int32(d), np.int32(e), np.int32(plan.kind == "causal"))
    strides = _cuda_linear.batch(lead, q.shape[:-2], key_lead)
    arguments = (q, k, v, _cuda_linear.key_arguments(key_mask, key_lead), out, lse, real(scale), *sizes, *strides)
    _cuda.launch(function, how.grid, how.threads, how.shared_bytes, arguments)
    return out, lse
