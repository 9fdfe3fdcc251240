"""Cotangents of gated linear attention in CUDA: a block walks to the end of a sequence, and back.

A token of a head with d channels and e columns costs 14 d e operations in products where it erases along its key, 18
d e where by a pair and 8 d e else, besides twice the 4 d e, 6 d e or 2 d e of walking forward, and some 1400 d for each
block of columns, twice that for a pair. Of states, one in 128 tokens is kept.
"""

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._sums.cotangents import sum_onto
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.sizes import C_TYPES, REALS, ceil_div, pieces, row_length
from kernattn.ops.gated.gpu import PAIR, SIZE, WARPS, GatedCode, chunk_bytes, numbers, widths, work_of
from kernattn.ops.gated.reference import Tokens
from kernattn.ops.gated_vjp.reference import Cotangents, heard_queries, heard_tokens, lead_of, raise_tokens
from kernattn.ops.gated_vjp.reference import gated_vjp as reference

GROUP = 8  # windows of 16 tokens between states that are kept for good


def launch(
    entries: int, d: int, e: int, dtype: str, channels: bool, rule: int, limits: runtime.Limits
) -> tuple[GatedCode, runtime.Launch] | None:
    """Return the launch for outputs (entries, n, e), or None where the states have no room in shared memory."""
    product = operand(dtype, limits.capability)
    for eb in widths(entries, e, limits):
        code = GatedCode(C_TYPES[dtype], product, channels, rule, eb)
        shared = chunk_bytes(code, d) + _more_bytes(code, d)
        if shared <= limits.shared_bytes:
            return code, runtime.Launch(code.defines, (entries * ceil_div(e, eb),), 32 * WARPS, shared)
    return None


def _more_bytes(code: GatedCode, d: int) -> int:
    wide, v_row = ceil_div(d, 16) * 16, row_length(code.operand, code.eb)
    writers = 2 if code.rule == PAIR else 1
    return pieces(
        ((2 + writers) * SIZE * row_length(code.operand, wide), code.operand),
        (2 * SIZE * v_row, code.operand),
        (2 * SIZE * SIZE * writers, code.accumulator),
        ((2 + writers) * SIZE * wide, code.accumulator),
        (wide * (code.eb + 8), code.accumulator),
        (SIZE * (code.eb + 8), code.accumulator),
        (wide * v_row * (code.operand != code.accumulator), code.operand),
    )


def gated_vjp(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array | None, after: Array | None,
) -> Cotangents:  # fmt: skip
    """Leave states without room in shared memory to array operations."""
    real_out = None if out is None else out.astype("f8" if out.dtype == "f8" else "f4", copy=False)
    key_mask = heard_tokens(cupy, real_out, after, key_mask, lead_of(k, v, g, gk, beta, read, write))
    heard = _heard(q, out)
    others = k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids
    work = work_of(heard, *others)
    (n, d), e = q.shape[-2:], v.shape[-1]
    how = launch(len(work.table), d, e, dtype_name(v), work.channels, work.rule, runtime.limits())
    if how is None:
        return reference(q, *others, out, after)
    code, kernel = how
    real = REALS[code.accumulator]
    parts = ceil_div(e, code.eb)

    def room(wanted: bool, *shape: int) -> Array:
        return cupy.empty(shape, dtype=real) if wanted else NULL

    lead, logs, channels = work.out_lead, g is not None or gk is not None, d if work.channels else 1
    dq, dk = (room(True, parts, *lead, n, d) for _ in range(2))
    dv, d_state = room(True, *lead, n, e), room(state is not None, *lead, d, e)
    d_logs, d_beta = room(logs, parts, *lead, n, channels), room(beta is not None, parts, *lead, n)
    windows = ceil_div(n, SIZE)
    kept = (ceil_div(windows, GROUP) + GROUP) * ceil_div(d, 16) * 16 * (code.eb + 8)
    d_read, d_write = (room(read is not None, parts, *lead, n, d) for _ in range(2))
    written = (dq, dk, dv, d_logs, d_beta, d_read, d_write, d_state)
    states = room(True, kernel.grid[0] * kept)
    of_outputs = numbers(out, real), numbers(after, real)
    kernel.start("gated_vjp", "pull_back", *work.arguments, *of_outputs, states, *written)

    dq, dk, d_logs, d_beta, d_read, d_write = (
        None if x is NULL else x.sum(axis=0) for x in (dq, dk, d_logs, d_beta, d_read, d_write)
    )
    sides = Tokens(dq, dk, dv, d_logs if logs else cupy.zeros((*lead, n, 1), dtype=real), d_read, d_write, None)
    given = heard.astype(real, copy=False), k, v, g, gk, None, read, write, 1.0, l2_normalise, key_mask, segment_ids
    cotangents = raise_tokens(cupy, sides, *given)
    if beta is not None and d_beta is not None:
        d_beta = d_beta if key_mask is None else cupy.where(key_mask, d_beta, cupy.zeros_like(d_beta))
        d_beta = sum_onto(cupy, d_beta, tuple(beta.shape)).astype(beta.dtype, copy=False)
    of_state = None if state is None else sum_onto(cupy, d_state, tuple(state.shape))
    of_q = sum_onto(cupy, cotangents[0], tuple(q.shape)).astype(q.dtype, copy=False)
    return of_q, *cotangents[1:5], d_beta, *cotangents[6:], of_state


def _heard(q: Array, out: Array | None) -> Array:
    """Return queries that have a cotangent, 0 in place of others; their bits, as not all of CuPy takes bfloat16."""
    real = None if out is None else out.astype("f8" if out.dtype == "f8" else "f4", copy=False)
    return heard_queries(cupy, q.view(f"i{q.itemsize}"), real).view(q.dtype)
