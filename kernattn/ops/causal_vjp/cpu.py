"""Cotangents of causal linear attention by Numba: a walk forwards for the queries, and one backwards for the rest."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, without_flags
from kernattn.ops._numba.layout import accumulation, narrowed
from kernattn.ops.causal_vjp import reference
from kernattn.ops.cotangents import MapCotangent, in_units_of, onto
from kernattn.ops.key_state_vjp.walks import fused, keys, onto_state, queries, walked
from kernattn.ops.peaked import Normaliser, PeakedSum, finite
from kernattn.ops.spec import MapSpec

__all__ = ["causal_vjp"]

Found = tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]


def causal_vjp(
    q: Array,
    k: Array,
    v: Array,
    q_spec: MapSpec,
    k_spec: MapSpec,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    out: Array,
    normaliser: Normaliser,
    g: Array,
    after: PeakedSum | None,
    learn: bool,
) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]:
    """Return the cotangents of queries, keys, values and the incoming state.

    What is learnt, and what is far from ordinary, is left to array operations.
    """
    found = None
    if not learn and fused(q_spec, k_spec):
        found = _walked(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, out, normaliser, g, after)
    if found is None:
        found = without_flags(reference.causal_vjp)(
            q, k, v, q_spec, k_spec, state, key_mask, segment_ids, out, normaliser, g, after, learn
        )
    return found


def _walked(
    q: Array,
    k: Array,
    v: Array,
    q_spec: MapSpec,
    k_spec: MapSpec,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    out: Array,
    normaliser: Normaliser,
    g: Array,
    after: PeakedSum | None,
) -> Found | None:
    """Return the cotangents, None where a number is too large or too small for the loops."""
    dtype, n = accumulation(v), v.shape[-2]
    lead, heads = np.broadcast_shapes(k.shape[:-2], v.shape[:-2]), g.shape[:-2]
    key_side, query_side = keys(k, v, k_spec, key_mask, dtype), queries(q, q_spec, out, normaliser, g, dtype)
    fresh = back = None
    if segment_ids is not None:
        fresh, back = np.zeros((*lead, n), bool), np.zeros((*lead, n), bool)
        fresh[..., 1:] = segment_ids[..., 1:] != segment_ids[..., :-1]
        back[..., 1:] = fresh[..., :0:-1]
    ahead = walked(key_side, query_side, lead, heads, state, fresh)
    if ahead is None:
        return None
    end = None if after is None else PeakedSum(after.s, after.z, -finite(np, after.peak))
    behind = walked(
        query_side, key_side, lead, heads, end, back, reverse=True, wants=True, keeps=state is not None, once=True
    )
    if behind is None:
        return None
    dq, dk, dv = (
        narrowed(onto(np, dx, x.shape), x.dtype) for dx, x in ((ahead.dx, q), (behind.dx, k), (behind.read, v))
    )
    before = None if state is None else in_units_of(state, onto_state(state, behind))
    return MapCotangent(dq), MapCotangent(dk), dv, before
