"""Cotangents of exact attention in CUDA: queries go through keys, and keys through queries, a tile at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernattn._array import Array, dtype_name, namespace
from kernattn.errors import BackendUnavailable
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.axes import batch, broadcast, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.sizes import C_TYPES, ceil_div, pieces, power_of_two, row_length
from kernattn.ops._cuda.told import told
from kernattn.ops.cotangents import onto
from kernattn.ops.plan import Plan

__all__ = ["Launch", "block_softmax_vjp", "launch"]


@dataclass(frozen=True)
class Launch:
    """One launch of the kernel `back`."""

    defines: tuple[str, ...]
    grid: tuple[int, int]
    warps: int
    shared_bytes: int


def launch(
    entries: int, count: int, d: int, e: int, dtype: str, keys: bool, whole: bool, limits: runtime.Limits
) -> Launch:
    """Return the launch for the cotangents (entries, count, d) of queries, or of keys and values (entries, count, e).

    They are `whole` where nothing is added to them: then they are written in their own dtype. Weights and their
    cotangents need the exponents of float32, whatever the dtype of the arrays.
    """
    element, kind = operand(dtype, limits.capability), C_TYPES[dtype]
    accumulator = "double" if dtype == "float64" else "float"
    warps = 2 if element == "double" else 4
    rows, widest = 16 * warps, 64 if limits.roomy and element != "double" else 32
    db, eb = power_of_two(d, 32, widest), power_of_two(e, 32, widest)
    tokens = [(rows * row_length(element, db), element), (rows * row_length(element, eb), element), (rows, "float")]
    shared_bytes = pieces(*tokens, *tokens, (rows * row_length(element, rows), element), *[(rows, accumulator)] * 2)
    defines = (
        f"-DINPUT={kind}",
        f"-DVALUE={kind}",
        f"-DOPERAND={element}",
        "-DSPLIT=0",
        f"-DDB={db}",
        f"-DEB={eb}",
        f"-DWARPS={warps}",
        f"-DKEYS={int(keys)}",
        f"-DRESULT={kind if whole else accumulator}",
    )
    columns = max(ceil_div(d, db), ceil_div(e, eb) if keys else 1)
    return Launch(defines, (entries * ceil_div(count, rows), columns), warps, shared_bytes)


def block_softmax_vjp(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    plan: Plan,
    key_mask: Array | None,
    key_bias: Array | None,
    out: Array,
    lse: Array,
    g: Array,
    g_lse: Array | None,
) -> tuple[Array, Array, Array, Array, Array | None]:
    """Return the cotangents of q, k, v, the scale and the bias, of which there is none here."""
    import cupy

    if plan.kind == "parts" or key_bias is not None:
        raise BackendUnavailable("backend 'gpu' takes neither pattern nor key_bias; backend='reference' takes both")
    if g_lse is not None:  # a score counts as a value of 1, whose output is held at 0
        xp = namespace(q=q)
        one, none = xp.ones_like(v[..., :1]), xp.zeros_like(out[..., :1])
        more = xp.astype(g_lse, g.dtype)[..., None]
        v, out, g = (xp.concat(pair, axis=-1) for pair in ((v, one), (out, none), (g, more)))
        dq, dk, dv, ds, _ = block_softmax_vjp(q, k, v, scale, plan, key_mask, None, out, lse, g, None)
        return dq, dk, dv[..., :-1], ds, None
    device, dtype, xp = runtime.limits(), dtype_name(q), namespace(q=q)
    (n, d), (length, e), lead = q.shape[-2:], v.shape[-2:], tuple(g.shape[:-2])
    key_lead = merged_lead(k.shape[:-2], v.shape[:-2], lead_of(key_mask, 1))
    entries, real = math.prod(lead), np.float64 if dtype == "float64" else np.float32
    q_given, out, lse, g = (cupy.ascontiguousarray(x) for x in (q, out, lse, g))
    k_given, v_given = broadcast(k, key_lead, 2), broadcast(v, key_lead, 2)
    dots, counts = cupy.empty((*lead, n), dtype=real), cupy.empty((*lead, n), dtype=cupy.uint8)
    strides = batch(lead, q.shape[:-2], key_lead)

    def run(keys: bool, whole: bool) -> tuple[Array, Array, Array]:
        rows = length if keys else n
        how = launch(entries, rows, d, e, dtype, keys, whole, device)
        kind = q.dtype if whole else real
        dx = cupy.empty((*lead, rows, d), dtype=kind)
        dy = cupy.empty((*lead, rows, e), dtype=kind) if keys else NULL
        of_scale = NULL if keys else cupy.empty((how.grid[1], *lead, n), dtype=real)
        given = (q_given, k_given, g, v_given, lse, dots, counts, mask)
        sizes = (
            np.int64(n),
            np.int64(length),
            np.int32(d),
            np.int32(e),
            np.int32(entries),
            np.int32(plan.kind == "causal"),
        )
        function = runtime.kernel("block_softmax_vjp", "back", how.defines)
        arguments = (*given, dx, dy, of_scale, real(scale), *sizes, *strides)
        runtime.start(function, how.grid, 32 * how.warps, how.shared_bytes, arguments)
        return dx, dy, of_scale

    def like(found: Array, x: Array) -> Array:
        return xp.astype(onto(xp, found, tuple(x.shape)), x.dtype, copy=False)

    asking = launch(entries, n, d, e, dtype, False, True, device)
    ask, blocks = (
        runtime.kernel("block_softmax_vjp", "ask", asking.defines),
        max(1, ceil_div(entries * n, asking.warps)),
    )
    runtime.start(ask, (blocks,), 32 * asking.warps, 0, (out, g, lse, dots, counts, np.int32(e), np.int64(entries * n)))
    mask = told(counts, length, key_lead, key_mask, causal=plan.kind == "causal")
    dq, _, of_scale = run(False, tuple(q.shape[:-2]) == lead)
    dk, dv, _ = run(True, tuple(k.shape[:-2]) == tuple(v.shape[:-2]) == lead)
    return like(dq, q), like(dk, k), like(dv, v), xp.sum(of_scale), None
