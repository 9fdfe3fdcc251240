"""The recurrence over whole arrays: runs of tokens, their share among threads, and summaries of keys."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import WORTH_SHARING, share, threads
from kernattn.ops._numba.heads import Heads, heads
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    accumulation,
    flat,
    nothing,
    unwritten,
)
from kernattn.ops.features.sides import Side
from kernattn.ops.key_state.loops import recur
from kernattn.ops.peaked import LogNormaliser, PeakedSum, merge

__all__ = ["Work", "at", "nobody", "runs_of", "shaped", "stretches", "summarised", "work_of"]


KEPT = 1024
"""Heads, of keys and of queries, of the largest table of runs that is kept: less than 64 kB."""

Leads = tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]
"""Leading axes of q, None without queries, of k and of v."""


class Work(NamedTuple):
    """Everything but the runs: what `recur` reads."""

    keys: Side
    queries: Side | None
    v: NDArray[Any]
    e: int
    n: int
    mask: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    who: Leads
    heads: Heads
    chunk: int
    dtype: np.dtype[Any]

    @property
    def seconds(self) -> float:
        """What one core needs for a head."""
        features, groups, flops = self.keys.phi.features, self.heads.reads.shape[1], 0.0
        for side, times in ((self.keys, 1), (self.queries, groups)):
            if side is not None:
                projected = side.phi.dim if side.phi.projects else 0
                flops += times * 2.0 * features * (projected + self.e)
        flops += groups * self.chunk * (features + self.e)
        seconds = flops / FLOPS_PER_SECOND + (1 + groups) * features * SECONDS_PER_FEATURE
        return float(self.n * seconds * self.dtype.itemsize / 4)

    @property
    def peaks(self) -> int:
        """Return the number of peaks of a state."""
        return self.keys.phi.features if self.keys.phi.kind.per_feature else 1

    def run(
        self,
        runs: NDArray[np.int64],
        reads: NDArray[np.int64],
        before: PeakedSum | None,
        out: NDArray[Any],
        normaliser: LogNormaliser | None = None,
    ) -> PeakedSum:
        """Take the runs and return the sums after each, (R, M, e)."""
        phi, count = self.keys.phi, len(runs)
        q = self.keys if self.queries is None else self.queries
        s = np.empty((count, phi.features, self.e), self.dtype)
        z = np.empty((count, phi.features), self.dtype)
        peak = np.empty((count, self.peaks), self.dtype)
        none, unwanted = nothing(self.dtype), unwritten(self.dtype)
        answers = (
            out.reshape(-1),
            *((unwanted, unwanted) if normaliser is None else (x.reshape(-1) for x in normaliser)),
        )
        old = (none, none, none) if before is None else tuple(flat(x, self.dtype) for x in before)
        new = s.reshape(-1), z.reshape(-1), peak.reshape(-1)
        given_q = none if normaliser is None else q.given
        rows, masks = (q.x, self.keys.x, self.v, given_q, self.keys.given), (self.mask, self.fresh)

        def slab(low: int, high: int) -> None:
            recur(
                q.phi.arrays, phi.arrays, self.e, rows, masks, old, runs, reads, self.n, answers, new,
                self.chunk, low, high,
            )  # fmt: skip

        tokens = int((runs[:, 5] - runs[:, 4]).sum())
        share(slab, count, self.seconds * tokens / self.n)
        return PeakedSum(s, z, peak)


def work_of(
    queries: Side | None, keys: Side, v: Array, key_mask: Array | None, segment_ids: Array | None, chunk: int
) -> Work:
    """Return the arrays as the loop reads them, and who reads what."""
    dtype, (*v_lead, n, e) = accumulation(v), v.shape
    leads = None if queries is None else queries.lead, keys.lead, tuple(v_lead)
    who = heads(*leads)
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*who.lead, n)), bool)
    if segment_ids is not None:
        starts = np.zeros((*who.lead, n), bool)
        starts[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
        fresh = flat(starts, bool)
    return Work(keys, queries, flat(v, dtype), e, n, mask, fresh, leads, who, chunk, dtype)


def runs_of(work: Work, cuts: tuple[int, ...], begun: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a run for each head and each stretch between cuts, (B * S, 6), and who reads it, (B * S, G, 2).

    Where `begun`, sums came before every one of them. Small tables are kept: short calls ask for the same ones again.
    """
    few = (len(work.heads.k) + len(work.heads.q)) * len(cuts) <= KEPT
    return (_kept_runs if few else _kept_runs.__wrapped__)(work.who, cuts, begun)


@lru_cache(maxsize=256)
def _kept_runs(who: Leads, cuts: tuple[int, ...], begun: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found, stretches = heads(*who), len(cuts) - 1
    count = len(found.k)
    runs = np.empty((count, stretches, 6), np.int64)
    runs[..., 0], runs[..., 1] = found.k[:, None], found.v[:, None]
    runs[..., 2] = np.arange(count)[:, None]
    runs[..., 3] = np.arange(count * stretches).reshape(count, stretches) if begun else -1
    runs[..., 4], runs[..., 5] = cuts[:-1], cuts[1:]
    return runs.reshape(-1, 6), np.repeat(found.reads, stretches, axis=0)


def stretches(work: Work) -> int:
    """Into how many parts each head is cut: one where there are heads enough, or little to do."""
    count = len(work.heads.k)
    if work.seconds < 5 * WORTH_SHARING or work.n < 24 * work.chunk:
        return 1
    return max(1, threads() // count)


def shaped(sums: PeakedSum, lead: tuple[int, ...]) -> PeakedSum:
    """Return the same sums with other leading axes."""
    return PeakedSum(*(x.reshape(*lead, *x.shape[1:]) for x in sums))


def at(sums: PeakedSum, index: Any) -> PeakedSum:
    """Return some of the sums."""
    return PeakedSum(*(x[index] for x in sums))


def summarised(keys: Side, v: Array, key_mask: Array | None, chunk: int) -> PeakedSum:
    """Return the sums over all keys."""
    work = work_of(None, keys, v, key_mask, None, chunk)
    count, parts = len(work.heads.k), stretches(work)
    runs, _ = runs_of(work, tuple([work.n * i // parts for i in range(parts + 1)]), False)
    sums = work.run(runs, nobody(len(runs)), None, unwritten(work.dtype))
    if parts == 1:
        return shaped(sums, work.heads.lead)
    sums = shaped(sums, (count, parts))
    total = at(sums, np.s_[:, 0])
    for part in range(1, parts):
        total = merge(np, total, at(sums, np.s_[:, part]))
    return shaped(total, work.heads.lead)


def nobody(runs: int) -> NDArray[np.int64]:
    """Return that no query reads the runs."""
    return np.empty((runs, 0, 2), np.int64)
