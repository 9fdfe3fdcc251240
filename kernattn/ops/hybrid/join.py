"""Both parts under one normaliser, by whatever implementations there are of them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._plans.plan import Plan
from kernattn._plans.streams import Stream, Streams, streams_of
from kernattn._sums.peaked import Normaliser, PeakedSum, empty, finite
from kernattn.ops.hybrid.tokens import pick, pick_row, tokens_of

Map = MapSpec | ScaledFeatures
"""The spec of a map, or the features of these rows that somebody computed."""


def join(
    causal: Callable[..., Any],
    block_softmax: Callable[..., Any],
    q: Array,
    k: Array,
    v: Array,
    q_spec: Map,
    k_spec: Map,
    scale: float,
    plan: Plan,
    within: Plan,
    cut: bool,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    near_bias: Array | None,
    keep: bool,
) -> tuple[Any, ...]:
    """Return the op's outputs, by an implementation of causal attention and one of exact attention."""
    xp = namespace(v=v)
    near, lse = block_softmax(q, k, v, scale, within, key_mask, None)
    (queries, q_map), (keys, k_map) = rows_and_spec(q, q_spec), rows_and_spec(k, k_spec)
    total = near, exact(xp, lse, near_bias)
    after = state
    for stream in require_streams(plan, cut, state is not None).streams:
        tokens = tokens_of(stream, queries, keys, v, key_mask, segment_ids, q.shape[-2])
        before = None if stream.reverse else state
        far, z, last = causal(tokens.q, tokens.k, tokens.v, q_map, k_map, before, tokens.mask, tokens.segments, True)
        after = after if stream.reverse else last
        total = _merged(xp, total, (pick(far, stream.token_of_query), _rows_of(z, stream)), stream.reverse)
    out, normaliser = total
    after = _nothing(xp, keys, v, k_map) if after is None else after
    return (out, normaliser, after, near, lse) if keep else (out, None, after)


def require_streams(plan: Plan, cut: bool, begun: bool) -> Streams:
    """Return the streams of a plan that has some."""
    met = streams_of(plan, cut, begun)
    assert met is not None, "the caller asked whether the plan has streams"
    return met


def rows_and_spec(x: Array, spec: Map) -> tuple[Any, MapSpec | None]:
    """Return rows beside the spec of their map, or their features beside None."""
    return (spec, None) if isinstance(spec, ScaledFeatures) else (x, spec)


def exact(xp: ModuleType, lse: Array, bias: Array | None) -> Normaliser:
    """Return the normalisers of exact attention, e^b in them."""
    seen = lse != -xp.inf
    lse = lse if bias is None else xp.where(seen, lse + xp.astype(bias, lse.dtype, copy=False)[..., None], lse)
    return Normaliser(lse, xp.astype(seen, lse.dtype))


def _rows_of(found: Normaliser, stream: Stream) -> Normaliser:
    """Return the normalisers of queries in the order of a stream: nothing for those that are not of it."""
    peak, z = found
    return Normaliser(pick_row(peak, stream.token_of_query, -np.inf), pick_row(z, stream.token_of_query, 0.0))


Part = tuple[Array, Normaliser]
"""Outputs over some of the keys, and their normalisers."""


def _merged(xp: ModuleType, one: Part, other: Part, reverse: bool) -> Part:
    """Return outputs over the keys of both, where the rows of the other may stand in reverse."""
    (a, of_a), (b, of_b) = one, other
    if reverse:
        b, of_b = xp.flip(b, axis=-2), Normaliser(*(xp.flip(x, axis=-1) for x in of_b))
    (share, rest), normaliser = shares_of(xp, of_a, of_b)
    wide = accumulation_dtype(xp, a)
    total = share[..., None] * xp.astype(a, wide, copy=False) + rest[..., None] * xp.astype(b, wide, copy=False)
    return total, normaliser


@np.errstate(over="ignore")  # the largest log of a normaliser is the largest float, and the least minus that
def shares_of(xp: ModuleType, one: Normaliser, other: Normaliser) -> tuple[tuple[Array, Array], Normaliser]:
    """Return the shares that outputs over two sets of keys have in that over both, and its normalisers.

    Where these are 0, the shares are, too.
    """
    peaks = [xp.where(x.z == 0, -xp.inf, x.peak) for x in (one, other)]
    peak = finite(xp, xp.maximum(*peaks))
    weights = [x.z * xp.exp(own - peak) for x, own in zip((one, other), peaks, strict=True)]
    z = weights[0] + weights[1]
    safe = xp.where(z == 0, xp.ones_like(z), z)
    shares = [xp.where(z == 0, xp.zeros_like(z), x / safe) for x in weights]
    return (shares[0], shares[1]), Normaliser(peak, z)


def _nothing(xp: ModuleType, keys: Any, v: Array, k_spec: MapSpec | None) -> PeakedSum:
    """Return the sums of no key."""
    if k_spec is None:
        values, log_scale = keys
        lead = broadcast(values=tuple(values.shape[:-2]), v=tuple(v.shape[:-2]))
        rows, peaks = max(values.shape[-1], log_scale.shape[-1]), log_scale.shape[-1]
    else:
        lead = broadcast(keys=tuple(keys.shape[:-2]), v=tuple(v.shape[:-2]))
        rows = k_spec.num_features_of(keys.shape[-1])
        peaks = rows if k_spec.per_feature else 1
    return empty(xp, lead, rows, peaks, v.shape[-1], accumulation_dtype(xp, v), v)
