"""Causal linear attention by Numba: chunk by chunk, features and sums never leaving the cache.

A chunk is projected, exponentiated, multiplied and added to the sums while it lies in the second-level cache; the
features are never written to memory. All rows of a chunk share the unit of what its first row sees; where a key lies so
far above it that sums could overflow, the chunk ends early.
"""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser, PeakedSum, empty, merge
from kernattn.ops._numba.tiles.layout import accumulation, room
from kernattn.ops.features.sides import keys, queries
from kernattn.ops.key_state.recurrence import Work, runs_of, select, stretches, with_lead, work_of

CHUNK = 48  # three vectors of float32; fewer tokens load the sums more often, more compute more of the triangle


def causal(
    q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None, k_spec: MapSpec | None,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, normaliser: bool,
) -> tuple[Array, Normaliser | None, PeakedSum]:  # fmt: skip
    return _answer(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, normaliser, v.dtype)


def in_floats(
    q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None, k_spec: MapSpec | None,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, normaliser: bool,
) -> tuple[Array, Normaliser | None, PeakedSum]:  # fmt: skip
    """Return what the op does for rows of 16 bits as it would for these in float32: something is added to outputs."""
    return _answer(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, normaliser, accumulation(v))


def _answer(
    q: Array | ScaledFeatures, k: Array | ScaledFeatures, v: Array, q_spec: MapSpec | None, k_spec: MapSpec | None,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, normaliser: bool, given: np.dtype[Any],
) -> tuple[Array, Normaliser | None, PeakedSum]:  # fmt: skip
    """Cut each head into parts where threads outnumber heads: a pass sums the keys before each, another answers."""
    dtype = accumulation(v)
    readers, known = queries(q, q_spec, dtype, normaliser), keys(k, k_spec, dtype)
    work = work_of(readers, known, v, key_mask, segment_ids, min(CHUNK, v.shape[-2])).for_outputs(v, given)
    plan = work.plan
    parts, n, who = stretches(plan), plan.n, plan.heads
    out, row_z = room((*who.out_lead, n, plan.e), given), None
    if normaliser:
        row_z = Normaliser(np.empty(out.shape[:-1], dtype), np.empty(out.shape[:-1], dtype))
    if parts == 1:
        after = work.run(runs_of(plan.who, (0, n), state is not None), who.lead, state, out, row_z)
        return out, row_z, after
    count, pieces = len(who.k), -(-8 // parts)
    before = None if state is None else PeakedSum(*(x.reshape(count, *x.shape[len(who.lead) :]) for x in state))
    cuts = tuple([n * i // (parts * pieces) for i in range(parts * pieces + 1)])
    before = _before_each(work, before, cuts[: (parts - 1) * pieces + 1], pieces)
    after = work.run(runs_of(plan.who, cuts[::pieces], True), (count, parts), before, out, row_z)
    return out, row_z, with_lead(select(after, np.s_[:, -1]), who.lead)


def _before_each(work: Work, before: PeakedSum | None, cuts: tuple[int, ...], pieces: int) -> PeakedSum:
    """Return the sums before every `pieces`-th stretch between the cuts, (B * parts, M, e)."""
    plan, stretches = work.plan, len(cuts) - 1
    count, runs = len(plan.heads.k), runs_of(plan.who, cuts, False)
    sums = work.run(runs._replace(reads=runs.reads[:, :0]), (count, stretches), None)
    if before is None:
        before = empty(np, (count,), plan.features, plan.peaks, plan.e, work.dtype, sums.s)
    fresh = work.fresh.reshape(count, plan.n) if work.fresh.size else None
    total, parts = before, [before]
    for i in range(stretches):
        own = select(sums, np.s_[:, i])
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
