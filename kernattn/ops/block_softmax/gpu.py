"""Exact attention in CUDA: tiles of queries against tiles of keys, tensor cores for 16-bit types."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import before_rounding
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, broadcast, key_arguments, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.plans import Level, levels
from kernattn.ops._cuda.sizes import C_TYPES, REALS, accumulator_of, ceil_div, options, pieces, power_of_two, row_length
from kernattn.ops.block_softmax import reference


@dataclass(frozen=True)
class SoftmaxLaunch:
    """How the kernel `block_softmax` is compiled and launched: a block answers a tile of rows, and columns of v."""

    defines: tuple[str, ...]
    accumulator: str
    rows: int
    columns: int  # blocks that share a tile of rows
    threads: int
    shared_bytes: int


def launch(
    d: int, e: int, dtype: str, limits: runtime.Limits, *, parts: bool, biased: bool, joined: bool, many: bool = False,
    wide: bool = False,
) -> SoftmaxLaunch:  # fmt: skip
    """Return the launch for arrays of `dtype`; answers of several levels are `joined` in wider types, others as asked.

    Where there are `many` rows and no parts, tiles have twice as many rows: each reads all keys from the L2 cache.
    """
    half = dtype == "float16" and limits.capability >= 80
    element = C_TYPES[dtype] if half else operand(dtype, limits.capability)
    return _launch(d, e, dtype, element, parts, biased, joined, many and not parts and limits.roomy, wide)


@lru_cache(512)
def _launch(
    d: int, e: int, dtype: str, element: str, parts: bool, biased: bool, joined: bool, many: bool, wide: bool
) -> SoftmaxLaunch:
    accumulator, kind = accumulator_of(dtype), C_TYPES[dtype]
    small = element in ("half_t", "bf16_t")
    db = power_of_two(d, 16, 128 if small else 32)
    eb = power_of_two(e, 32, 128 if small else 32 if element == "double" else 64)
    tile = row_length(element, db)
    streams = d <= db and element == kind and small  # a second room for keys, on their way
    warps = 2 if element == "double" else 8 if streams and many else 4
    rows, keys, rooms = 16 * warps, min(16 * warps, 64), 1 + streams
    shared_bytes = pieces(
        (rows * tile, element),
        (rooms * keys * tile, element),
        (rooms * keys * row_length(element, eb), element),
        (rows * row_length(element, keys), element),
        (rooms * max(2, rows // 32) * keys, "float"),
        (rooms * keys * biased, accumulator),
    )
    flags = options(
        INPUT=kind, VALUE=kind, OPERAND=element, SPLIT=0, DB=db, EB=eb, WARPS=warps, PARTS=parts, BIASED=biased,
        WHOLE=d <= db, RESULT=accumulator if joined or wide else kind, LOG="double" if joined else accumulator,
    )  # fmt: skip
    return SoftmaxLaunch(flags, accumulator, rows, ceil_div(e, eb), 32 * warps, shared_bytes)


def block_softmax(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, key_bias: Array | None = None,
    score_bias: Array | None = None, keep: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    if score_bias is not None:  # no kernel adds one
        return reference.block_softmax(q, k, v, scale, plan, key_mask, key_bias, score_bias, keep)
    (n, d), (length, e) = q.shape[-2:], v.shape[-2:]
    key_lead = merged_lead(k.shape[:-2], v.shape[:-2], lead_of(key_mask, 1), lead_of(key_bias, 1))
    lead = merged_lead(q.shape[:-2], key_lead)
    q = cupy.ascontiguousarray(q)
    k, v = broadcast(k, key_lead, 2), broadcast(v, key_lead, 2)
    bias = NULL if key_bias is None else broadcast(key_bias.astype(q.dtype, copy=False), key_lead, 1)
    parts, joined = plan.kind == "parts", max(map(len, plan.heads), default=0) > 1
    device, entries, heads = runtime.limits(), math.prod(lead), max(1, len(plan.heads))
    many = entries * ceil_div(n, 128) >= device.multiprocessors
    forms = {"parts": parts, "biased": key_bias is not None, "joined": joined, "many": many, "wide": keep}
    how = launch(d, e, dtype_name(q), device, **forms)
    real = REALS[how.accumulator]
    out = cupy.empty((*lead, n, e), dtype=real if joined or keep else q.dtype)
    lse = cupy.empty((*lead, n), dtype=np.float64 if joined else real)
    work = levels(plan, how.rows) if parts else (Level(NULL, NULL, NULL, NULL, ceil_div(n, how.rows), True),)
    if not (work and work[0].whole):
        out.fill(0)
        lse.fill(-np.inf)
    keys = (k, v, key_arguments(key_mask, key_lead), bias)
    sizes = (np.int64(n), np.int64(length), np.int32(d), np.int32(e), np.int32(plan.kind == "causal"))
    strides = batch(lead, q.shape[:-2], key_lead)
    for level in work:
        before = NULL if level is work[0] else lse.copy()
        tables = (*level[:4], np.int32(level.blocks), np.int32(heads))
        arguments = (q, *keys, out, lse, before, *tables, real(scale), *sizes, *strides)
        grid = (entries // heads * level.blocks, how.columns)
        kernel = runtime.Launch(how.defines, grid, how.threads, how.shared_bytes)
        kernel.start("block_softmax", "block_softmax", *arguments)
    if joined:
        largest = float(np.finfo(real).max)
        lse = cupy.where(cupy.isinf(lse), lse, cupy.clip(lse, -largest, largest)).astype(real, copy=False)
    if not keep:
        return out.astype(q.dtype, copy=False), lse
    rounded = out.astype(q.dtype, copy=False)
    return rounded, lse, before_rounding(namespace(q=q), out, q.dtype)
