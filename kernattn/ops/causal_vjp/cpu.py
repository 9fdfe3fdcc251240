"""Cotangents of causal linear attention by Numba: a walk forwards for the queries, and one backwards for the rest."""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, in_units_of, sum_onto
from kernattn._sums.peaked import Normaliser, PeakedSum, finite
from kernattn.ops._numba.tiles.layout import accumulation, narrow
from kernattn.ops.causal.reference import causal
from kernattn.ops.causal_vjp import reference
from kernattn.ops.key_state_vjp.normalised import lowered, raised
from kernattn.ops.key_state_vjp.walks import Side, Walk, keys, loops_take, onto_state, queries, walk_tokens, whole
from kernattn.ops.recast import narrow_cotangents, widen


def causal_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, state: PeakedSum | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array, normaliser: Normaliser, g: Array, after: PeakedSum | None, learn: bool,
) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]:  # fmt: skip
    """Leave maps that the loops do not take, and in float64 what is far from ordinary, to array operations."""
    dtype = accumulation(v)
    if loops_take(q_spec, k_spec):
        rest = whole(out, dtype), normaliser, g, after, learn
        cotangents = in_loops(q, k, v, q_spec, k_spec, state, key_mask, segment_ids, *rest)
        if cotangents is not None:
            return cotangents
        dtype = np.dtype(np.float64)
    tokens = widen(dtype, q, k, v, q_spec, k_spec, state, key_mask, segment_ids)
    dq, dk, dv, before = _recompute(tokens, widen(dtype, g, after, learn))
    if state is not None and before is not None:
        before = PeakedSum(*(narrow(x, y.dtype) for x, y in zip(before, state, strict=True)))
    return narrow_cotangents(dq, q), narrow_cotangents(dk, k), narrow(dv, v.dtype), before


def in_loops(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, state: PeakedSum | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array | None, normaliser: Normaliser, g: Array, after: PeakedSum | None,
    learn: bool, *, asked: np.dtype[Any] | None = None,
) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None] | None:  # fmt: skip
    """Return the cotangents for maps that the loops take; None where a number is too large or too small for these.

    They are in the dtypes of what they are of, or in the one that is `asked` for.
    """
    dtype = accumulation(v)
    lead = np.broadcast_shapes(k.shape[:-2], v.shape[:-2])
    rows, row_spec = lowered(k, k_spec)
    sides = keys(rows, v, row_spec, key_mask, dtype), queries(q, q_spec, out, normaliser, g, dtype)
    if asked is not None:
        sides = sides[0].in_floats(), sides[1].in_floats()
    walks = both_ways(*sides, (lead, g.shape[:-2]), state, segment_ids, after, learn)
    if walks is None:
        return None
    ahead, behind = walks
    before = None if state is None else in_units_of(state, onto_state(state, behind))
    assert behind.read is not None
    dv = narrow(sum_onto(np, behind.read, v.shape), asked or v.dtype)
    dk = raised(k, k_spec, rows, behind.cotangent(rows, row_spec, asked), learn, asked)
    return ahead.cotangent(q, q_spec, asked), dk, dv, before


def in_floats(*given: Any) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None] | None:
    """Return what `in_loops` does for rows of 16 bits as it would for these in float32: something is added to it."""
    return in_loops(*given, asked=accumulation(given[2]))


def both_ways(
    of_keys: Side,
    of_queries: Side,
    leads: tuple[tuple[int, ...], tuple[int, ...]],
    state: PeakedSum | None,
    segment_ids: Array | None,
    after: PeakedSum | None,
    learn: bool,
    scaled: bool = False,
    lag: int = 0,
) -> tuple[Walk, Walk] | None:
    """Return the results of both walks, None where a number is too large or too small for the loops.

    The log scales of queries count where they are `scaled`, and queries may be ahead of keys, as in `walk_tokens`.
    """
    fresh = back = None
    if segment_ids is not None:
        change = np.broadcast_to(segment_ids[..., 1:] != segment_ids[..., :-1], (*leads[0], segment_ids.shape[-1] - 1))
        none = np.zeros((*leads[0], 1), bool)
        fresh, back = np.concatenate([none, change], axis=-1), np.concatenate([none, change[..., ::-1]], axis=-1)
    ahead = walk_tokens(of_keys, of_queries, *leads, state, fresh, learn=learn, scaled=scaled, lag=lag)
    if ahead is None:
        return None
    end = None if after is None else PeakedSum(after.s, after.z, -finite(np, after.peak))
    behind = walk_tokens(
        of_queries.without_outputs(), of_keys, *leads, end, back,
        reverse=True, wants=True, keeps=state is not None, once=True, checks=False, learn=learn,
        lag=lag,
    )  # fmt: skip
    return None if behind is None else (ahead, behind)


@without_flags
def _recompute(tokens: list[Any], rest: list[Any]) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]:
    """Return the cotangents by array operations, from outputs and normalisers that are computed once more."""
    forward: list[Any] = [*tokens, True]
    given: list[Any] = [*tokens, *causal(*forward)[:2], *rest]
    return reference.causal_vjp(*given)
