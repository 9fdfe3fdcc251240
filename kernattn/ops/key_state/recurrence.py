"""The recurrence over whole arrays: runs of tokens, their share among threads, and summaries of keys."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, threads, worth_sharing
from kernattn._sums.peaked import Normaliser, PeakedSum, merge
from kernattn.ops._numba.matrix.operands import Operands
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import Heads, heads
from kernattn.ops._numba.tiles.layout import (
    NO_MASK,
    Rows,
    accumulation,
    flat,
    nothing,
    rows,
    seconds_of,
    unwritten,
    written,
)
from kernattn.ops.features.sides import Side
from kernattn.ops.key_state.loops import BEFORE, END, FIRST, MASK, RUN_COLUMNS, K, V, recur
from kernattn.ops.key_state.matrix import Answers, Sums, on_unit, operands_for

Leads = tuple[tuple[int, ...] | None, tuple[int, ...], tuple[int, ...]]
"""Leading axes of q, None without queries, of k and of v."""


class Plan(NamedTuple):
    """What follows from shapes and dtypes alone: made once for all calls of one form."""

    who: Leads
    heads: Heads
    n: int
    e: int
    chunk: int
    features: int
    peaks: int  # of a state
    seconds: float  # that one core needs for a head


class Runs(NamedTuple):
    """Stretches of tokens, one after the other for each head."""

    table: NDArray[np.int64]  # (R, RUN_COLUMNS), as `recur` takes it
    reads: NDArray[np.int64]  # (R, G, 2) who reads each
    tokens: int  # of all


class Work(NamedTuple):
    """Everything but the runs: what `recur` reads."""

    keys: Side
    queries: Side | None
    v: Rows
    mask: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    plan: Plan
    dtype: np.dtype[Any]
    taken: Operands | None  # how the matrix unit takes products, where it does

    def for_outputs(self, v: Array, dtype: np.dtype[Any]) -> "Work":
        """Return what writes outputs of a dtype: where values have another, floats take all products."""
        return self if v.dtype == dtype else self._replace(taken=None)

    def run(
        self,
        runs: Runs,
        lead: tuple[int, ...],
        before: PeakedSum | None,
        out: NDArray[Any] | None = None,
        normaliser: Normaliser | None = None,
    ) -> PeakedSum:
        """Take the runs and return the sums after each, (*lead, M, e)."""
        plan, dtype = self.plan, self.dtype
        s, z = np.empty((*lead, plan.features, plan.e), dtype), np.empty((*lead, plan.features), dtype)
        peak = np.empty((*lead, plan.peaks), dtype)
        self._recur(runs, before, out, normaliser, (s.reshape(-1), z.reshape(-1), peak.reshape(-1)))
        return PeakedSum(s, z, peak)

    def answer(self, runs: Runs, out: NDArray[Any], normaliser: Normaliser | None) -> bool:
        """Answer queries that see all tokens of their runs, each a chunk; False where one had to end early."""
        return self._recur(runs, None, out, normaliser, (unwritten(self.dtype),) * 3)

    def _recur(
        self,
        runs: Runs,
        before: PeakedSum | None,
        out: NDArray[Any] | None,
        normaliser: Normaliser | None,
        after: tuple[NDArray[Any], ...],
    ) -> bool:
        keys, queries, v, mask, fresh, (_, _, n, e, chunk, _, _, seconds), dtype, taken = self
        q = keys if queries is None else queries
        none, unwanted = nothing(dtype), unwritten(dtype)
        answers, given_q = (written(unwanted if out is None else out, dtype), unwanted, unwanted), none
        if normaliser is not None:
            answers, given_q = (answers[0], normaliser.peak.reshape(-1), normaliser.z.reshape(-1)), q.given
        old = (none, none, none) if before is None else tuple([flat(x, dtype) for x in before])
        tokens, masks, maps = (q.x, keys.x, v, given_q, keys.given), (mask, fresh), (q.phi.arrays, keys.phi.arrays)
        table, reads, count = runs

        def by_floats(answers: Answers, after: Sums) -> bool:
            whole: list[bool] = []

            def slab(low: int, high: int) -> None:
                whole.append(recur(*maps, e, tokens, masks, old, table, reads, n, answers, after, chunk, low, high))

            share(slab, len(table), seconds * count / n)
            return all(whole)

        if taken is None:
            return by_floats(answers, after)
        given = (*maps, e, tokens, masks, old, table, reads, n)
        return on_unit(given, answers, after, chunk, taken, by_floats, seconds * count / n)


def work_of(
    queries: Side | None, keys: Side, v: Array, key_mask: Array | None, segment_ids: Array | None, chunk: int
) -> Work:
    """Return the arrays as the loop reads them, and who reads what."""
    dtype, shape, phi = accumulation(v), v.shape, keys.phi
    q_lead, q_products = None, 0
    if queries is not None:
        q_lead, q_products = queries.lead, queries.phi.dim * queries.phi.projects
    leads = q_lead, keys.lead, shape[:-2]
    peaks = phi.features if phi.kind.per_feature else 1
    plan = _plan(leads, shape[-2:], chunk, phi.features, peaks, phi.dim * phi.projects, q_products, dtype.itemsize)
    mask = fresh = NO_MASK
    if key_mask is not None:
        mask = flat(np.broadcast_to(key_mask, (*plan.heads.lead, plan.n)), bool)
    if segment_ids is not None:
        starts = np.zeros((*plan.heads.lead, plan.n), bool)
        starts[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
        fresh = flat(starts, bool)
    return Work(keys, queries, rows(v, dtype), mask, fresh, plan, dtype, operands_for(v, keys, queries))


@keep_while_small
def _plan(
    who: Leads,
    tokens: tuple[int, int],
    chunk: int,
    features: int,
    peaks: int,
    k_products: int,
    q_products: int,
    itemsize: int,
) -> Plan:
    """Return the plan for values of n tokens by e, and projections that take so many products a feature."""
    (n, e), met = tokens, heads(*who)
    groups = met.reads.shape[1]
    flops = 2.0 * features * (k_products + e) + groups * 2.0 * features * (q_products + e)
    flops += groups * chunk * (features + e)
    seconds = n * seconds_of(flops, (1 + groups) * features, itemsize)
    return Plan(who, met, n, e, chunk, features, peaks, seconds)


@keep_while_small
def runs_of(who: Leads, cuts: tuple[int, ...], begun: bool) -> Runs:
    """Return a run for each head and each stretch between cuts, before each of which sums came where it has `begun`."""
    met, stretches = heads(*who), len(cuts) - 1
    count = len(met.k)
    runs = np.empty((count, stretches, RUN_COLUMNS), np.int64)
    runs[..., K], runs[..., V], runs[..., MASK] = met.k[:, None], met.v[:, None], np.arange(count)[:, None]
    runs[..., BEFORE] = np.arange(count * stretches).reshape(count, stretches) if begun else -1
    runs[..., FIRST], runs[..., END] = cuts[:-1], cuts[1:]
    return Runs(runs.reshape(-1, RUN_COLUMNS), np.repeat(met.reads, stretches, axis=0), count * (cuts[-1] - cuts[0]))


def stretches(plan: Plan) -> int:
    """Into how many parts each head is cut: one where there are heads enough, or little to do."""
    if not worth_sharing(plan.seconds / 5) or plan.n < 24 * plan.chunk:
        return 1
    return max(1, threads() // len(plan.heads.k))


def with_lead(sums: PeakedSum, lead: tuple[int, ...]) -> PeakedSum:
    """Return the sums, their leading axis reshaped to `lead`."""
    return PeakedSum(*(x.reshape(*lead, *x.shape[1:]) for x in sums))


def select(sums: PeakedSum, index: Any) -> PeakedSum:
    """Return the sums at an index."""
    return PeakedSum(*(x[index] for x in sums))


def sum_keys(keys: Side, v: Array, key_mask: Array | None, chunk: int) -> PeakedSum:
    """Return the sums over all keys."""
    work = work_of(None, keys, v, key_mask, None, chunk)
    plan = work.plan
    parts, lead, n = stretches(plan), plan.heads.lead, plan.n
    if parts == 1:
        return work.run(runs_of(plan.who, (0, n), False), lead, None)
    cuts = tuple([n * i // parts for i in range(parts + 1)])
    sums = work.run(runs_of(plan.who, cuts, False), (len(plan.heads.k), parts), None)
    total = select(sums, np.s_[:, 0])
    for part in range(1, parts):
        total = merge(np, total, select(sums, np.s_[:, part]))
    return with_lead(total, lead)
