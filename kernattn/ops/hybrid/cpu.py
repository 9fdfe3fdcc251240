"""Both parts by Numba: the loops of causal and of exact attention.

Behind a window the loop of causal attention reads queries so many rows ahead of keys, and writes where these stand:
nothing is copied.
"""

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._plans.plan import Plan
from kernattn._plans.streams import Stream
from kernattn._runtime.parallel import share
from kernattn._sums.peaked import Normaliser, PeakedSum, before_rounding
from kernattn.ops._numba.tiles.layout import accumulation, flat, narrow, room, seconds_of, settled, skipped
from kernattn.ops.block_softmax.cpu import in_floats
from kernattn.ops.causal import cpu as features
from kernattn.ops.features.sides import keys, queries
from kernattn.ops.hybrid.join import Map, exact, join, require_streams, rows_and_spec, shares_of
from kernattn.ops.hybrid.loops import blend
from kernattn.ops.hybrid.tokens import masks_of
from kernattn.ops.key_state.recurrence import runs_of, stretches, work_of


@without_flags
def hybrid(
    q: Array, k: Array, v: Array, q_spec: Map, k_spec: Map, scale: float, plan: Plan, within: Plan, causal: bool,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None, keep: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the op's outputs."""
    given = v.dtype
    streams = require_streams(plan, causal, state is not None).streams
    lagged = None
    if len(streams) == 1 and q.shape[-2] == k.shape[-2] and is_lag(streams[0]):
        shape = (*np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]), *v.shape[-2:])
        lagged = _lagged(q, k, v, q_spec, k_spec, streams[0], state, key_mask, segment_ids, shape)
    if lagged is None:
        made = join(
            features.in_floats, in_floats, q, k, v, q_spec, k_spec, scale, plan, within, causal,
            state, key_mask, segment_ids, near_bias, keep,
        )  # fmt: skip
        if keep:
            return narrow(made[0], given), *made[1:], before_rounding(np, made[0], given)
        return settled(made[0], given), *made[1:]
    far, normaliser, after = lagged
    near, lse = in_floats(q, k, v, scale, within, key_mask, None)
    shares, normaliser = shares_of(np, exact(np, lse, near_bias), normaliser)
    _blend(near, far, *shares)
    if keep:
        return narrow(far, given), normaliser, after, near, lse, before_rounding(np, far, given)
    return settled(far, given), None, after


def is_lag(stream: Stream) -> bool:
    """Do queries stand beside earlier keys, one by one?"""
    picks = stream.queries, stream.keys
    return not stream.reverse and all(x.rows is None and x.missing is None for x in picks) and stream.keys.start == 0


def _lagged(
    q: Array,
    k: Array,
    v: Array,
    q_spec: Map,
    k_spec: Map,
    stream: Stream,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    shape: tuple[int, ...],
) -> tuple[NDArray[Any], Normaliser, PeakedSum] | None:
    """Return outputs by features and their normalisers, nothing for rows before the lag; None where heads are cut."""
    dtype, lag, count = accumulation(v), stream.queries.start, stream.keys.stop
    (of_q, q_map), (of_k, k_map) = rows_and_spec(q, q_spec), rows_and_spec(k, k_spec)
    readers, known_keys = queries(of_q, q_map, dtype, True), keys(of_k, k_map, dtype)
    floats, bits, _ = readers.x
    width = (floats.size + bits.size) // (prod(readers.lead) * readers.n)
    mask, segments = masks_of(v, stream, key_mask, segment_ids, q.shape[-2])
    mask, segments = (None if x is None else padded(x, v.shape[-2]) for x in (mask, segments))
    readers = readers._replace(x=skipped(readers.x, lag * width), given=readers.given[lag:])
    work = work_of(readers, known_keys, v, mask, segments, min(features.CHUNK, count)).for_outputs(v, dtype)
    if stretches(work.plan) > 1:
        return None
    out = room(shape, dtype)
    row_z = Normaliser(np.zeros(shape[:-1], dtype), np.zeros(shape[:-1], dtype))
    out[..., :lag, :] = 0
    e, who = v.shape[-1], work.plan.heads
    behind = Normaliser(*(x.reshape(-1)[lag:] for x in row_z))
    after = work.run(
        runs_of(work.plan.who, (0, count), state is not None), who.lead, state, out.reshape(-1)[lag * e :], behind
    )
    return out, row_z, after


def padded(x: Array, length: int) -> Array:
    """Return a row of tokens (..., N) with as many as there are keys: the last are not looked at."""
    return np.concatenate([x, np.broadcast_to(x[..., -1:], (*x.shape[:-1], length - x.shape[-1]))], axis=-1)


def _blend(near: NDArray[Any], far: NDArray[Any], one: NDArray[Any], other: NDArray[Any]) -> None:
    """Make far the sum of both times their shares."""
    given = flat(near, far.dtype), far.reshape(-1), flat(one, far.dtype), flat(other, far.dtype)
    share(partial(blend, *given), one.size, seconds_of(16.0 * far.size, 0, far.dtype.itemsize))
