"""Cotangents of exact attention in CUDA: queries go through keys, and keys through queries, a tile at a time."""

import math
from dataclasses import dataclass

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._plans.plan import Plan, kept_with_plan
from kernattn._plans.transposed import from_keys
from kernattn._sums.cotangents import sum_onto
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, broadcast, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.plans import Level, levels
from kernattn.ops._cuda.seen_keys import mask_of_seen_keys
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options, pieces, power_of_two, row_length
from kernattn.ops.block_softmax_vjp import reference


@dataclass(frozen=True)
class SoftmaxBackLaunch:
    """One launch of the kernel `back`."""

    defines: tuple[str, ...]
    rows: int
    columns: int  # blocks that share a tile of rows
    warps: int
    shared_bytes: int


def launch(
    d: int, e: int, dtype: str, keys: bool, whole: bool, limits: runtime.Limits, *, parts: bool, biased: bool,
    out: str | None = None,
) -> SoftmaxBackLaunch:  # fmt: skip
    """Return the launch for the cotangents of queries (..., d), or of keys and values (..., e).

    They are `whole` where nothing is added to them: then they are written in their own dtype. Outputs have the dtype
    `out` if that is another. Weights and their cotangents need the exponents of float32, whatever the dtype is.
    """
    element, kind = operand(dtype, limits.capability), C_TYPES[dtype]
    accumulator = accumulator_of(dtype)
    warps = 2 if element == "double" else 4
    rows, widest = 16 * warps, 64 if limits.roomy and element != "double" else 32
    db, eb = power_of_two(d, 32, widest), power_of_two(e, 32, widest)
    tokens = [(rows * row_length(element, db), element), (rows * row_length(element, eb), element), (rows, "float")]
    shared_bytes = pieces(*tokens, *tokens, (rows * row_length(element, rows), element), *[(rows, accumulator)] * 2)
    shared_bytes += pieces((rows * biased, accumulator), (2 * rows * parts, "float"))
    flags = options(
        INPUT=kind, VALUE=kind, OPERAND=element, SPLIT=0, DB=db, EB=eb, WARPS=warps, KEYS=keys, PARTS=parts,
        BIASED=biased, RESULT=kind if whole else accumulator, OUTPUT=C_TYPES[out or dtype],
    )  # fmt: skip
    columns = max(ceil_div(d, db), ceil_div(e, eb) if keys else 1)
    return SoftmaxBackLaunch(flags, rows, columns, warps, shared_bytes)


@kept_with_plan
def _lists_twice(plan: Plan) -> bool:
    """Return whether a part of a plan lists a key more than once."""
    lists = [part.keys for parts in plan.heads for part in parts if part.keys is not None]
    return any(len(np.unique(keys)) < len(keys) for keys in lists)


def block_softmax_vjp(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None,
    score_bias: Array | None, out: Array, lse: Array, g: Array, g_lse: Array | None,
) -> tuple[Array, Array, Array, Array, Array | None, Array | None]:  # fmt: skip
    if score_bias is not None or _lists_twice(plan):  # sums of blocks that run side by side would meet
        return reference.block_softmax_vjp(q, k, v, scale, plan, key_mask, key_bias, score_bias, out, lse, g, g_lse)
    xp = namespace(q=q)
    if g_lse is not None:  # a score counts as a value of 1, whose output is held at 0
        one, none = xp.ones_like(v[..., :1]), xp.zeros_like(out[..., :1])
        more = xp.astype(g_lse, g.dtype)[..., None]
        v, out, g = (xp.concat(pair, axis=-1) for pair in ((v, one), (out, none), (g, more)))
        dq, dk, dv, *rest = block_softmax_vjp(q, k, v, scale, plan, key_mask, key_bias, None, out, lse, g, None)
        return dq, dk, dv[..., :-1], *rest
    parts, biased, device, dtype = plan.kind == "parts", key_bias is not None, runtime.limits(), dtype_name(q)
    if key_bias is not None:
        key_mask = key_bias != -xp.inf if key_mask is None else key_mask & (key_bias != -xp.inf)
    (n, d), (length, e), lead = q.shape[-2:], v.shape[-2:], tuple(g.shape[:-2])
    key_lead = merged_lead(k.shape[:-2], v.shape[:-2], lead_of(key_mask, 1))
    entries, heads, real = math.prod(lead), max(1, len(plan.heads)), np.float64 if dtype == "float64" else np.float32
    q_given, out, lse, g = (cupy.ascontiguousarray(x) for x in (q, out, lse, g))
    k_given, v_given = broadcast(k, key_lead, 2), broadcast(v, key_lead, 2)
    bias = NULL if key_bias is None else broadcast(key_bias.astype(q.dtype, copy=False), key_lead, 1)
    dots, counts = cupy.empty((*lead, n), dtype=real), cupy.empty((*lead, n), dtype=cupy.uint8)
    strides = batch(lead, q.shape[:-2], key_lead)
    room = cupy.zeros if parts else cupy.empty  # parts add

    def run(keys: bool, whole: bool) -> tuple[Array, ...]:
        rows, whole = length if keys else n, whole and not parts
        how = launch(d, e, dtype, keys, whole, device, parts=parts, biased=biased, out=dtype_name(out))
        kind = q.dtype if whole else real
        dx = room((*lead, rows, d), dtype=kind)
        dy = room((*lead, rows, e), dtype=kind) if keys else NULL
        of_scale = NULL if keys else room((how.columns, *lead, n), dtype=real)
        of_bias = room((*lead, length), dtype=real) if keys and biased else NULL
        standing = Level(NULL, NULL, NULL, NULL, ceil_div(rows, how.rows), True)
        work = levels(from_keys(plan) if keys else plan, how.rows) if parts else (standing,)
        sizes = (*map(np.int64, (n, length)), *map(np.int32, (d, e, entries, plan.kind == "causal")))
        for level in work:
            tables = (*level[:4], np.int32(level.blocks), np.int32(heads))
            given = (q_given, k_given, g, v_given, lse, dots, counts, mask, bias)
            arguments = (*given, *tables, dx, dy, of_scale, of_bias, real(scale), *sizes, *strides)
            grid = (entries // heads * level.blocks, how.columns)
            kernel = runtime.Launch(how.defines, grid, 32 * how.warps, how.shared_bytes)
            kernel.start("block_softmax_vjp", "back", *arguments)
        return dx, dy, of_scale, of_bias

    def like(cotangent: Array, x: Array) -> Array:
        return xp.astype(sum_onto(xp, cotangent, tuple(x.shape)), x.dtype, copy=False)

    asking = launch(d, e, dtype, False, True, device, parts=parts, biased=biased, out=dtype_name(out))
    ask = runtime.Launch(asking.defines, (max(1, ceil_div(entries * n, asking.warps)),), 32 * asking.warps, 0)
    ask.start("block_softmax_vjp", "ask", out, g, lse, dots, counts, np.int32(e), np.int64(entries * n))
    if parts:  # a row that sees a key which is not finite has no finite normaliser, and does not count
        known = cupy.all(cupy.isfinite(k_given), axis=-1)
        mask = broadcast(known if key_mask is None else known & key_mask, key_lead, 1).view(cupy.uint8)
    else:
        mask = mask_of_seen_keys(counts, length, key_lead, key_mask, causal=plan.kind == "causal")
    dq, _, of_scale, _ = run(False, tuple(q.shape[:-2]) == lead)
    dk, dv, _, of_bias = run(True, tuple(k.shape[:-2]) == tuple(v.shape[:-2]) == lead)
    of_bias = None if key_bias is None else like(of_bias, key_bias)
    return like(dq, q), like(dk, k), like(dv, v), xp.sum(of_scale), of_bias, None
