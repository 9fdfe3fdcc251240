"""Cotangents of exact attention by Numba: each block of keys meets each block of queries that sees it once."""

from __future__ import annotations

from math import isqrt, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import share
from kernattn.ops._numba.heads import heads
from kernattn.ops._numba.kept import kept_while_small
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    accumulation,
    flat,
    narrowed,
)
from kernattn.ops.block_softmax_vjp.far_loops import pull_far_rows
from kernattn.ops.block_softmax_vjp.loops import pull_blocks
from kernattn.ops.block_softmax_vjp.rows_loops import judge_rows
from kernattn.ops.cotangents import onto
from kernattn.ops.plan import Plan

__all__ = ["block_softmax_vjp"]

BLOCK = 64  # queries, and keys
PIECES = 32  # at least, where there are as many blocks
VISITS = 256  # of blocks, in a piece


def block_softmax_vjp(
    q: Array, k: Array, v: Array, scale: float, plan: Plan, key_mask: Array | None, out: Array, lse: Array, g: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the cotangents of q, k, v and the scale."""
    dtype, causal, scale = accumulation(q), plan.kind == "causal", float(scale)
    how = _planned(q.shape, k.shape, v.shape, causal, dtype.itemsize)
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, how.mask), bool)
    queries, keys, values, of_out = (
        flat(x, dtype, shape) for x, shape in zip((q, k, v, g), (how.q, how.k, how.v, how.g), strict=True)
    )
    flat_out, flat_lse = flat(out, dtype), flat(lse, dtype)
    shifts, dots = np.empty(lse.size, dtype), np.empty(lse.size, dtype)
    far = np.empty(lse.size, np.bool_)
    dq, dk, dv = (np.zeros(shape, dtype) for shape in (how.dq, how.dk, how.dv))
    sums = dq.reshape(-1), dk.reshape(-1), dv.reshape(-1)
    tables = how.states, how.reads

    def judge(low: int, high: int) -> None:
        judge_rows(
            queries, keys, mask, scale, causal, *tables, flat_out, flat_lse, of_out, shifts, dots, far, low, high
        )  # fmt: skip

    share(judge, len(how.states), how.seconds_to_judge)
    ds = np.zeros((len(how.states), how.splits))

    def pull(phase: int, low: int, high: int) -> None:
        pull_blocks(
            queries, keys, values, of_out, mask, scale, causal, *tables, shifts, dots, *sums, ds.reshape(-1),
            how.block, how.splits, phase, low, high,
        )  # fmt: skip

    for phase in range(how.splits):  # one after the other, so that sums run in one order on any number of threads
        share(lambda low, high, phase=phase: pull(phase, low, high), ds.size, how.seconds)  # type: ignore[misc]
    if far.any():
        own = np.zeros(len(ds))

        def pull_far(low: int, high: int) -> None:
            pull_far_rows(
                queries, keys, values, of_out, mask, scale, causal, *tables, far, *sums, own, low, high
            )  # fmt: skip

        share(pull_far, len(ds), how.seconds * how.splits)
        ds[:, 0] += own
    dq, dk, dv = (narrowed(onto(np, dx, x.shape), x.dtype) for dx, x in ((dq, q), (dk, k), (dv, v)))
    return dq, dk, dv, np.asarray(ds.sum(), dtype)


class _Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    q: tuple[int, ...]  # (heads, n, d), as the loops see queries
    k: tuple[int, ...]
    v: tuple[int, ...]
    g: tuple[int, ...]
    mask: tuple[int, ...]
    dq: tuple[int, ...]  # with the leading axes of outputs
    dk: tuple[int, ...]  # with those of k and v together, as dv
    dv: tuple[int, ...]
    states: NDArray[np.int64]  # (B, 2) heads of k and v that meet
    reads: NDArray[np.int64]  # (B, G, 2) heads of q that read them, and of outputs
    block: int
    splits: int
    seconds: float  # of a phase
    seconds_to_judge: float


@kept_while_small
def _planned(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, itemsize: int) -> _Plan:
    (*q_lead, n, dim), (*k_lead, length, _), (*v_lead, _, e) = q, k, v
    who = heads(tuple(q_lead), tuple(k_lead), tuple(v_lead))
    states, count, group = np.stack([who.k, who.v], axis=-1), len(who.k), who.reads.shape[1]
    block = min(BLOCK, max(n, length))
    blocks = -(-n // block), -(-length // block)
    long = isqrt(prod(blocks) * group // VISITS)
    splits = max(1, min(*blocks, max(-(-PIECES // count), long)))
    pairs = count * group * n * length * (0.5 if causal else 1.0)
    seconds = pairs * (2.0 * (3 * dim + 2 * e) / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * itemsize / 4
    return _Plan(
        (-1, n, dim), (-1, length, dim), (-1, length, e), (-1, n, e), (*who.lead, length),
        (*who.out_lead, n, dim), (*who.lead, length, dim), (*who.lead, length, e),
        states, who.reads, block, splits, seconds / splits,
        (count * group * n * (dim + 2 * e) + count * length * dim) / FLOPS_PER_SECOND,
    )  # fmt: skip
