r"""Cotangents of causal linear attention in array-API, by doubling.

At level h = 1, 2, 4, ... the queries of the right half of every run of 2h tokens see the keys of its left half, as in
the forward op: each such meeting is a summary of keys that queries read, and is taken back as one. What is met is given
the keys' own peak as its unit; cotangents of features and values are plain numbers, which add up. No array value is
tested and nothing is written in place.
"""

from types import ModuleType
from typing import NamedTuple

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, zeros
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.cotangents import MapCotangent, in_units_of, onto_sums, sum_onto, weight
from kernattn._sums.peaked import Normaliser, PeakedSum, finite, summarise
from kernattn.ops.attend_vjp.reference import over_normalisers, pull_reading
from kernattn.ops.causal.reference import causal, count_segments, side_of
from kernattn.ops.features_vjp.reference import pull_back
from kernattn.ops.key_state_vjp.reference import admit_keys, onto_keys, pull_summary

NEAR = 64  # tokens of a half up to which all pairs are formed: less than a summary


class Tokens(NamedTuple):
    """What meets: queries over their normalisers, and keys; (..., n, c) each."""

    queries: ScaledFeatures
    ghat: Array
    keys: ScaledFeatures
    values: Array
    seen: Array  # (..., n) bool, of keys
    segment: Array  # (..., n)


Cotangents = tuple[Array, Array, Array]
"""Of the features of queries and of keys, and of values."""


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
    """Return the cotangents of queries, keys, values and the incoming state."""
    xp = namespace(q=q)
    n = v.shape[-2]
    none = zeros(xp, (n,), xp.int32, v)
    mask = none == 0 if key_mask is None else key_mask
    segment = none if segment_ids is None else count_segments(xp, segment_ids)
    dtype = accumulation_dtype(xp, v)
    if out.dtype != dtype:  # rounded: g.v and g.o nearly cancel
        wide = xp.astype(v, dtype)
        out, _, _ = causal(q, k, wide, q_spec, k_spec, state, key_mask, segment_ids, False)
    q, queries, ghat = over_normalisers(xp, q, q_spec, out, normaliser, g)
    k, keys, values = admit_keys(xp, k, v, k_spec, mask)

    cotangents: Cotangents = _own_key(queries, ghat, keys, values, mask)
    tokens = _pad(xp, Tokens(queries, ghat, keys, values, mask, segment))
    half = 1
    while half < n:
        more = _meet(xp, tokens, half, n)
        cotangents = cotangents[0] + more[0], cotangents[1] + more[1], cotangents[2] + more[2]
        half *= 2
    of_queries, of_keys, dv = cotangents

    before = None
    if state is not None:
        f, sums = pull_reading(xp, queries, ghat, state, segment == 0)
        of_queries, before = of_queries + f, in_units_of(state, onto_sums(xp, sums, state))
    if after is not None:
        last = mask & (segment == segment[..., -1:])
        f, more = pull_summary(xp, keys, values, last, after)
        of_keys, dv = (sum_onto(xp, x, tuple(y.shape)) + y for x, y in ((of_keys, f), (dv, more)))
        if state is not None and before is not None:
            before = _pass_on(xp, before, state, after, segment[..., -1] == 0)
    dq = pull_back(q, q_spec, sum_onto(xp, of_queries, (*q.shape[:-1], of_queries.shape[-1])), False, learn)
    dv = xp.astype(sum_onto(xp, dv, tuple(v.shape)), v.dtype, copy=False)
    return dq, onto_keys(xp, k, k_spec, of_keys, learn), dv, before


def _own_key(queries: ScaledFeatures, ghat: Array, keys: ScaledFeatures, v: Array, mask: Array) -> Cotangents:
    """Return the cotangents from each query's meeting with the key of its own token."""
    xp = namespace(v=v)
    has_cotangent = (mask & _queries_with_cotangents(xp, queries))[..., None]
    factor = weight(xp, xp.where(has_cotangent, queries.log_scale + keys.log_scale, -xp.inf))  # (..., n, M | 1)
    d = xp.sum(ghat[..., :-1] * v, axis=-1, keepdims=True) + ghat[..., -1:]  # (..., n, 1)
    total = xp.sum(queries.values * keys.values * factor, axis=-1, keepdims=True)
    cotangents = d * keys.values * factor, d * queries.values * factor, total * ghat[..., :-1]
    of_queries, of_keys, dv = (xp.where(has_cotangent, x, xp.zeros_like(x)) for x in cotangents)
    return of_queries, of_keys, dv


def _queries_with_cotangents(xp: ModuleType, queries: ScaledFeatures) -> Array:
    """Return which queries (..., n) have a normaliser and a cotangent."""
    return xp.any(queries.log_scale != -xp.inf, axis=-1)


def _pad(xp: ModuleType, tokens: Tokens) -> Tokens:
    """Return as many tokens as a power of two, the last of which neither see nor are seen."""
    n = tokens.ghat.shape[-2]
    missing = (1 << (n - 1).bit_length()) - n

    def longer(x: Array, fill: float | None = None) -> Array:
        more = zeros(xp, (*x.shape[:-2], missing, x.shape[-1]), x.dtype, x)
        return xp.concat([x, more if fill is None else more + fill], axis=-2) if missing else x

    queries, keys = tokens.queries, tokens.keys
    return Tokens(
        ScaledFeatures(longer(queries.values), longer(queries.log_scale, -xp.inf)),
        longer(tokens.ghat),
        ScaledFeatures(*(longer(x) for x in keys)),
        longer(tokens.values),
        longer(tokens.seen[..., None])[..., 0],
        longer(tokens.segment[..., None])[..., 0],
    )


def _meet(xp: ModuleType, tokens: Tokens, half: int, n: int) -> Cotangents:
    """Return the cotangents from the meetings of each run's right half with its left half, (..., n, c)."""
    queries, keys = (
        ScaledFeatures(*(side_of(xp, x, half, side) for x in pair))
        for pair, side in ((tokens.queries, 1), (tokens.keys, 0))
    )
    ghat, v = side_of(xp, tokens.ghat, half, 1), side_of(xp, tokens.values, half, 0)
    left, right = (side_of(xp, tokens.segment[..., None], half, side)[..., 0] for side in (0, 1))
    crossing = right[..., :1]  # of one run of tokens, only the segment at its middle crosses it
    seen = side_of(xp, tokens.seen[..., None], half, 0)[..., 0] & (left == crossing)
    sees = right == crossing
    if half > NEAR:
        f_q, sums = pull_reading(xp, queries, ghat, summarise(xp, keys, v, seen), sees)
        f_k, dv = pull_summary(xp, keys, v, seen, sums)
    else:
        f_q, f_k, dv = _pairs(xp, queries, ghat, keys, v, seen, sees)
    return _unfold(xp, f_q, 1, n), _unfold(xp, f_k, 0, n), _unfold(xp, dv, 0, n)


def _pairs(
    xp: ModuleType, queries: ScaledFeatures, ghat: Array, keys: ScaledFeatures, v: Array, seen: Array, sees: Array
) -> Cotangents:
    """Return the cotangents, with every pair's weight (..., h, h) written out."""
    of_query = (sees & _queries_with_cotangents(xp, queries))[..., None]  # (..., h, 1)
    seen = seen[..., None]
    k_log, *rows = (xp.where(seen, x, fill) for x, fill in ((keys.log_scale, -xp.inf), (keys.values, 0.0), (v, 0.0)))
    unit = xp.max(k_log, axis=-2, keepdims=True)
    k_factor = xp.exp(k_log - finite(xp, unit))
    q_factor = weight(xp, xp.where(of_query, queries.log_scale + unit, -xp.inf))
    k_weights, q_weights = rows[0] * k_factor, queries.values * q_factor
    both = xp.concat([rows[1], xp.ones_like(rows[1][..., :1])], axis=-1)
    d = xp.matmul(ghat, xp.matrix_transpose(both))  # (..., h, h), query by key
    weights = xp.matmul(q_weights, xp.matrix_transpose(k_weights))
    of_key = seen & xp.any(of_query, axis=-2, keepdims=True)
    cotangents = (
        (of_query, q_factor * xp.matmul(d, k_weights)),
        (of_key, k_factor * xp.matmul(xp.matrix_transpose(d), q_weights)),
        (of_key, xp.matmul(xp.matrix_transpose(weights), ghat[..., :-1])),
    )
    of_queries, of_keys, dv = (xp.where(some, x, xp.zeros_like(x)) for some, x in cotangents)
    return of_queries, of_keys, dv


def _pass_on(xp: ModuleType, before: PeakedSum, state: PeakedSum, after: PeakedSum, whole: Array) -> PeakedSum:
    """Add what the outgoing state took of the incoming one, where `whole` (...) sequences are one segment."""
    factor = xp.where(whole[..., None], xp.exp(state.peak - finite(xp, after.peak)), xp.zeros_like(state.peak))
    return PeakedSum(before.s + factor[..., None] * after.s, before.z + factor * after.z, before.peak)


def _unfold(xp: ModuleType, x: Array, side: int, n: int) -> Array:
    """Put halves of runs back among the n rows, with 0 for the other ones."""
    both = xp.stack([x, xp.zeros_like(x)] if side == 0 else [xp.zeros_like(x), x], axis=-3)  # (..., n / 2h, 2, h, c)
    return xp.reshape(both, (*both.shape[:-4], -1, both.shape[-1]))[..., :n, :]
