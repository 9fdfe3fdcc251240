"""The way back where queries stand beside earlier keys, as behind a window: nothing is copied, one array a cotangent.

The walks of causal attention write the cotangents of the features' part, and the loops of exact attention add theirs to
these. The log scales of queries get theirs in the walk, too. What is left to read is what both parts read alone.
"""

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import sum_onto
from kernattn._sums.peaked import Normaliser
from kernattn.ops._numba.tiles.layout import accumulation
from kernattn.ops.block_softmax_vjp.cpu import add_cotangents
from kernattn.ops.causal_vjp.cpu import both_ways
from kernattn.ops.features.normalised import normalisers_and_shares
from kernattn.ops.features.sides import queries as forward_queries
from kernattn.ops.hybrid.cpu import is_lag, padded
from kernattn.ops.hybrid.join import require_streams
from kernattn.ops.hybrid.tokens import masks_of
from kernattn.ops.hybrid_vjp.parts import Cotangents, Given, Made, added, of_log_scale
from kernattn.ops.key_state_vjp.normalised import lowered, raised
from kernattn.ops.key_state_vjp.walks import keys, queries
from kernattn.ops.recast import row_dots


def row_scales(x: Array, spec: MapSpec) -> tuple[Array, Array | None]:
    """Return the log scales of rows (..., n, d), (..., n), and the shares of features that sum to 1, (..., n, M)."""
    dtype = accumulation(x)
    if spec.normalised:
        return normalisers_and_shares(x, spec, dtype)
    scales = forward_queries(x, spec, dtype, True).given
    return scales.reshape(x.shape[:-1]) if scales.size else np.zeros(x.shape[:-1], dtype), None


def _without_the_blind(made: Made) -> Made:
    """Return what was made with rows that saw nothing as rows without a cotangent."""
    peak, z = made.normaliser
    blind = z == 0
    if not blind.any():
        return made
    out, near, g = (np.where(blind[..., None], np.zeros_like(x), x) for x in (made.out, made.near, made.g))
    normaliser = Normaliser(np.where(blind, np.zeros_like(peak), peak), np.where(blind, np.ones_like(z), z))
    near_lse = np.where(blind, np.full_like(made.near_lse, -np.inf), made.near_lse)
    return made._replace(out=out, normaliser=normaliser, near=near, near_lse=near_lse, g=g)


def pull_lagged(given: Given, made: Made, learn: bool) -> Cotangents | None:
    """Return the cotangents; None after a state, of other plans, of heads in groups, of rows that need more care."""
    if given.state is not None:
        return None
    q, k, v, dtype = given.q, given.k, given.v, accumulation(given.v)
    streams = require_streams(given.plan, given.causal, False).streams
    alike = q.shape[:-1] == k.shape[:-1] == v.shape[:-1] == made.g.shape[:-1]
    if not (alike and len(streams) == 1 and is_lag(streams[0]) and (made.normaliser.z >= 0).all()):
        return None
    made = _without_the_blind(made)
    peak, z = made.normaliser
    lag, n, lead = streams[0].queries.start, q.shape[-2], q.shape[:-2]
    scales, shares = row_scales(q, given.q_spec)
    log = peak + np.log(z)
    if given.near_bias is not None:
        log = log - given.near_bias.astype(dtype, copy=False)[..., None]
    # what all logs of a row's exact part share
    apart = given.q_spec.scales_apart
    of_rows = of_bias = None
    if given.near_bias is not None or apart:
        of_near = np.exp(made.near_lse - log) * (row_dots(made.g, made.near) - row_dots(made.g, made.out))
        if given.near_bias is not None:
            of_bias = sum_onto(np, np.sum(of_near, axis=-1), given.near_bias.shape)
        of_rows = of_log_scale(np, q, given.q_spec, -of_near, learn, shares) if apart else None
    del shares  # room for what is written next
    # the part of the features
    mask, segments = masks_of(v, streams[0], given.key_mask, given.segment_ids, n)
    mask, segments = (None if x is None else padded(x, n) for x in (mask, segments))
    rows, row_spec = lowered(k, given.k_spec)
    q_spec = given.q_spec.unscaled if apart else given.q_spec
    normaliser = Normaliser(peak - scales, z)
    of_queries = queries(q, q_spec, made.out, normaliser, made.g, dtype).in_floats().ahead(lag)
    walks = both_ways(
        keys(rows, v, row_spec, mask, dtype).in_floats(), of_queries, (lead, lead), None, segments, made.after, learn,
        scaled=q_spec.row_weights is not None, lag=lag,
    )  # fmt: skip
    if walks is None:
        return None
    ahead, behind = walks
    of_q = ahead.cotangent(q, q_spec, dtype)
    of_k = raised(k, given.k_spec, rows, behind.cotangent(rows, row_spec, dtype), learn, dtype)
    dv = behind.read
    assert dv is not None
    # the exact part
    onto = tuple(np.ascontiguousarray(x) for x in (of_q.x, of_k.x, dv))
    add_cotangents(q, k, v, given.scale, given.within, given.key_mask, None, made.out, log, made.g, None, onto)
    dq, dk, dv = onto
    if of_rows is not None:
        of_q = added(of_q, of_rows)
        dq += of_rows.x
    return of_q._replace(x=dq), of_k._replace(x=dk), dv, None, of_bias
