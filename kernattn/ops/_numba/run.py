"""The recurrence over whole arrays: units of work, their share among threads, and the merge of what they found."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array
from kernattn._parallel import WORTH_SHARING, share, threads
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    Heads,
    Side,
    accumulation,
    bound,
    flat,
    heads,
    room,
)
from kernattn.ops._numba.linear import recur
from kernattn.ops.peaked import LogNormaliser, PeakedSum, empty, merge

__all__ = ["add_scales", "attended", "summarised", "unwritten"]


class _Work(NamedTuple):
    """Everything but the units: what `recur` reads."""

    keys: Side
    queries: Side | None
    v: NDArray[Any]
    e: int
    n: int
    mask: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    heads: Heads
    chunk: int
    dtype: np.dtype[Any]

    @property
    def seconds(self) -> float:
        """What one core needs for a head."""
        features, groups, flops = self.keys.plan.features, self.heads.reads.shape[1], 0.0
        for side, times in ((self.keys, 1), (self.queries, groups)):
            if side is not None:
                projected = side.plan.dim if side.plan.projects else 0
                flops += times * 2.0 * features * (projected + self.e)
        flops += groups * self.chunk * (features + self.e)
        seconds = flops / FLOPS_PER_SECOND + (1 + groups) * features * SECONDS_PER_FEATURE
        return float(self.n * seconds * self.dtype.itemsize / 4)

    @property
    def peaks(self) -> int:
        """Return the number of peaks of a state."""
        return self.keys.plan.features if self.keys.plan.kind.per_feature else 1

    def recur(
        self,
        units: NDArray[np.int64],
        reads: NDArray[np.int64],
        before: PeakedSum | None,
        out: NDArray[Any],
        normaliser: LogNormaliser | None = None,
    ) -> PeakedSum:
        """Run the units and return the sums after each, (U, M, e)."""
        plan, count = self.keys.plan, len(units)
        q = self.keys if self.queries is None else self.queries
        s = np.empty((count, plan.features, self.e), self.dtype)
        z = np.empty((count, plan.features), self.dtype)
        peak = np.empty((count, self.peaks), self.dtype)
        nothing = _empty(self.dtype)
        logs, signs = (unwritten(self.dtype),) * 2 if normaliser is None else (x.reshape(-1) for x in normaliser)
        old = (nothing, nothing, nothing) if before is None else tuple(flat(x, self.dtype) for x in before)

        def slab(low: int, high: int) -> None:
            recur(
                q.plan.numbers, q.plan.constants, plan.numbers, plan.constants, self.e,
                q.x, self.keys.x, self.v, self.keys.given, self.mask, self.fresh, *old,
                units, reads, self.n, out.reshape(-1), logs, signs, s.reshape(-1), z.reshape(-1), peak.reshape(-1),
                self.chunk, bound(self.dtype), low, high,
            )  # fmt: skip

        tokens = int((units[:, 5] - units[:, 4]).sum())
        share(slab, count, self.seconds * tokens / self.n)
        return PeakedSum(s, z, peak)


@lru_cache(maxsize=8)
def _empty(dtype: np.dtype[Any]) -> NDArray[Any]:
    return flat(np.zeros(0), dtype)


@lru_cache(maxsize=8)
def unwritten(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return room for what is not wanted."""
    return np.zeros(0, dtype)


def _work(
    queries: Side | None, keys: Side, v: Array, key_mask: Array | None, segment_ids: Array | None, chunk: int
) -> _Work:
    dtype, (*v_lead, n, e) = accumulation(v), v.shape
    who = heads(None if queries is None else queries.lead, keys.lead, tuple(v_lead))
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*who.lead, n)), bool)
    if segment_ids is not None:
        starts = np.zeros((*who.lead, n), bool)
        starts[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
        fresh = flat(starts, bool)
    return _Work(keys, queries, flat(v, dtype), e, n, mask, fresh, who, chunk, dtype)


def _units(work: _Work, starts: NDArray[np.int64], cuts: list[int]) -> NDArray[np.int64]:
    """Return a unit for each head and each stretch between cuts, (B * (len(cuts) - 1), 6)."""
    stretches, count = len(cuts) - 1, len(work.heads.k)
    units = np.empty((count, stretches, 6), np.int64)
    units[..., 0], units[..., 1] = work.heads.k[:, None], work.heads.v[:, None]
    units[..., 2], units[..., 3] = np.arange(count)[:, None], starts.reshape(count, -1)
    units[..., 4], units[..., 5] = cuts[:-1], cuts[1:]
    return units.reshape(-1, 6)


def _stretches(work: _Work) -> int:
    """Into how many parts each head is cut: one where there are heads enough, or little to do."""
    count = len(work.heads.k)
    if work.seconds < 5 * WORTH_SHARING or work.n < 24 * work.chunk:
        return 1
    return max(1, threads() // count)


def _shaped(sums: PeakedSum, lead: tuple[int, ...]) -> PeakedSum:
    return PeakedSum(*(x.reshape(*lead, *x.shape[1:]) for x in sums))


def _at(sums: PeakedSum, index: Any) -> PeakedSum:
    return PeakedSum(*(x[index] for x in sums))


def summarised(keys: Side, v: Array, key_mask: Array | None, chunk: int) -> PeakedSum:
    """Return the sums over all keys."""
    work = _work(None, keys, v, key_mask, None, chunk)
    count, parts = len(work.heads.k), _stretches(work)
    cuts = [work.n * i // parts for i in range(parts + 1)]
    none = np.full((count, parts), -1)
    units = _units(work, none, cuts)
    sums = work.recur(units, np.zeros((len(units), 0, 2), np.int64), None, np.empty(0, work.dtype))
    sums = _shaped(sums, (count, parts))
    total = _at(sums, np.s_[:, 0])
    for part in range(1, parts):
        total = merge(np, total, _at(sums, np.s_[:, part]))
    return _shaped(total, work.heads.lead)


def attended(
    queries: Side,
    keys: Side,
    v: Array,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    normaliser: bool,
    chunk: int,
) -> tuple[NDArray[Any], LogNormaliser | None, PeakedSum]:
    """Return causal outputs, their normalisers where they are wanted, and the sums after the last token.

    With fewer heads than threads, each head is cut into parts: one pass summarises the keys before each part, a second
    one answers.
    """
    work = _work(queries, keys, v, key_mask, segment_ids, chunk)
    count, parts = len(work.heads.k), _stretches(work)
    out = room((*work.heads.out_lead, work.n, work.e), work.dtype)
    found = LogNormaliser(np.empty_like(out[..., 0]), np.empty_like(out[..., 0])) if normaliser else None
    before = None if state is None else PeakedSum(*(x.reshape(count, *x.shape[len(work.heads.lead) :]) for x in state))
    starts = np.full((count, 1), -1) if before is None else np.arange(count)[:, None]
    cuts = [0, work.n]
    if parts > 1:
        pieces = -(-8 // parts)
        cuts = [work.n * i // (parts * pieces) for i in range(parts * pieces + 1)]
        before = _before_each(work, before, cuts[: (parts - 1) * pieces + 1], pieces)
        starts = np.arange(count * parts).reshape(count, parts)
        cuts = cuts[::pieces]
    units = _units(work, starts, cuts)
    after = work.recur(units, np.repeat(work.heads.reads, parts, axis=0), before, out, found)
    last = _at(_shaped(after, (count, parts)), np.s_[:, -1])
    if found is not None:
        add_scales(found, queries)
    return out, found, _shaped(last, work.heads.lead)


def add_scales(found: LogNormaliser, queries: Side) -> None:
    """Add the log scales of the queries' own rows, which the loops leave out."""
    if queries.given.size:
        np.add(found.log, queries.given.reshape(*queries.lead, queries.n), out=found.log)


def _before_each(work: _Work, before: PeakedSum | None, cuts: list[int], pieces: int) -> PeakedSum:
    """Return what every `pieces`-th stretch between the cuts finds before it, (B * parts, M, e)."""
    count, stretches = len(work.heads.k), len(cuts) - 1
    units = _units(work, np.full((count, stretches), -1), cuts)
    found = work.recur(units, np.zeros((len(units), 0, 2), np.int64), None, np.empty(0, work.dtype))
    found = _shaped(found, (count, stretches))
    if before is None:
        before = empty(np, (count,), work.keys.plan.features, work.peaks, work.e, work.dtype, found.s)
    fresh = work.fresh.reshape(count, work.n) if work.fresh.size else None
    total, parts = before, [before]
    for i in range(stretches):
        own = _at(found, np.s_[:, i])
        both = merge(np, total, own)
        if fresh is not None:
            cut = fresh[:, cuts[i] : cuts[i + 1]].any(axis=1)
            both = PeakedSum(
                *(np.where(cut.reshape(-1, *(1,) * (x.ndim - 1)), x, y) for x, y in zip(own, both, strict=True))
            )
        total = both
        if (i + 1) % pieces == 0:
            parts.append(total)
    stacked = PeakedSum(*(np.stack(x, axis=1) for x in zip(*parts, strict=True)))
    return PeakedSum(*(x.reshape(-1, *x.shape[2:]) for x in stacked))
