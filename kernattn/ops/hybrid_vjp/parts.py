"""The way back through each part, by whatever implementations there are of them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, sign
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._plans.streams import Pick, Stream
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops.features_vjp.reference import of_logs, slope
from kernattn.ops.features_vjp.reference import shares as shares_of_rows
from kernattn.ops.hybrid.join import require_streams
from kernattn.ops.hybrid.tokens import ordered, pick, pick_row, tokens_of

Cotangents = tuple[MapCotangent, MapCotangent, Array, PeakedSum | None, Array | None]


class Given(NamedTuple):
    """What the op took."""

    q: Array
    k: Array
    v: Array
    q_spec: MapSpec
    k_spec: MapSpec
    scale: float
    plan: Plan
    within: Plan
    causal: bool
    state: PeakedSum | None
    key_mask: Array | None
    segment_ids: Array | None
    near_bias: Array | None


class Made(NamedTuple):
    """What it gave, and the cotangents of that."""

    out: Array
    normaliser: Normaliser
    near: Array
    near_lse: Array
    g: Array
    after: PeakedSum | None


def row_dots(a: Array, b: Array) -> Array:
    """Return the inner products of rows."""
    return namespace(a=a).vecdot(a, b)


class Parts(NamedTuple):
    """Implementations of what both parts are taken back by."""

    causal_vjp: Callable[..., Any]
    block_softmax_vjp: Callable[..., Any]
    row_scales: Callable[[Array, MapSpec], tuple[Array, Array | None]]  # of rows (..., n, d), and shares if it has them
    row_dots: Callable[[Array, Array], Array] = row_dots


def pull_parts(parts: Parts, given: Given, made: Made, learn: bool) -> Cotangents | None:
    """Return the cotangents; None where the pullback of causal attention gives none."""
    xp, host = namespace(q=given.q), isinstance(given.q, np.ndarray)
    wide = accumulation_dtype(xp, given.q)
    alive = (made.normaliser.z != 0) & xp.any(made.g != 0, axis=-1)
    out, near, g, (peak, z) = made.out, made.near, made.g, made.normaliser
    if not (host and alive.all()):
        out, near, g = (xp.where(alive[..., None], x, xp.zeros_like(x)) for x in (out, near, g))
        peak, z = (xp.where(alive, x, xp.ones_like(x)) for x in (peak, z))
    log = peak + xp.log(xp.abs(z))
    signed = g if host and (z > 0).all() else g * sign(xp, z)[..., None]
    bias = None if given.near_bias is None else xp.astype(given.near_bias, wide, copy=False)[..., None]
    dq, dk, dv, *_ = parts.block_softmax_vjp(
        given.q, given.k, given.v, given.scale, given.within, given.key_mask, None, None, out,
        log if bias is None else log - bias, signed, None,
    )  # fmt: skip
    q_numbers: MapCotangent | None = None
    k_numbers: MapCotangent | None = None
    before = None
    scales, shares = parts.row_scales(given.q, given.q_spec)
    normaliser = Normaliser(peak - scales, z)
    streams = require_streams(given.plan, given.causal, given.state is not None).streams
    if host and len(streams) == 1:  # all queries then, also those that see no key yet: these are not copied
        streams = require_streams(given.plan, given.causal, not streams[0].reverse).streams
    for stream in streams:
        cotangents = _of_stream(parts.causal_vjp, stream, given, made.after, out, normaliser, g, learn)
        if cotangents is None:
            return None
        of_q, of_k, of_v, of_state = cotangents
        q_numbers, k_numbers = added(q_numbers, of_q), added(k_numbers, of_k)
        dq = _with(dq, of_q.x, stream, stream.token_of_query)
        dk, dv = (_with(x, y, stream, stream.token_of_key) for x, y in ((dk, of_k.x), (dv, of_v)))
        before = before if of_state is None else of_state
    share = xp.exp(xp.where(alive, made.near_lse - (log if bias is None else log - bias), -xp.inf))
    of_near = share * (
        parts.row_dots(signed, near) - parts.row_dots(signed, out)
    )  # of all logs of a row's exact part, (..., n)
    of_bias = None
    if given.near_bias is not None:
        of_bias = sum_onto(xp, xp.sum(of_near, axis=-1), tuple(given.near_bias.shape))
        of_bias = xp.astype(of_bias, given.near_bias.dtype, copy=False)
    of_rows = of_log_scale(xp, given.q, given.q_spec, -of_near, learn, shares)
    if of_rows is not None:
        q_numbers = added(q_numbers, of_rows)
        if host:  # in place: large arrays cost more to get than to fill
            dq += of_rows.x
        else:
            dq = dq + of_rows.x
    q_numbers = MapCotangent(dq) if q_numbers is None else q_numbers
    k_numbers = added(k_numbers, MapCotangent(dk))
    return q_numbers._replace(x=dq), k_numbers._replace(x=dk), dv, before, of_bias


def _of_stream(
    causal_vjp: Callable[..., Any],
    stream: Stream,
    given: Given,
    after: PeakedSum | None,
    out: Array,
    normaliser: Normaliser,
    g: Array,
    learn: bool,
) -> Any:
    """Return the cotangents of a stream's tokens, by the pullback of causal attention."""
    xp = namespace(q=given.q)
    tokens = tokens_of(stream, given.q, given.k, given.v, given.key_mask, given.segment_ids, given.q.shape[-2])
    of_out, of_g = (pick(ordered(xp, x, stream), stream.queries) for x in (out, g))
    rows = [ordered(xp, x[..., None], stream)[..., 0] for x in normaliser]
    peak, z = (pick_row(x, stream.queries, fill) for x, fill in zip(rows, (0.0, 1.0), strict=True))
    return causal_vjp(
        tokens.q, tokens.k, tokens.v, given.q_spec.unscaled, given.k_spec, None if stream.reverse else given.state,
        tokens.mask, tokens.segments, of_out, Normaliser(peak, z), of_g, None if stream.reverse else after, learn,
    )  # fmt: skip


def _with(x: Array, y: Array, stream: Stream, how: Pick) -> Array:
    """Return cotangents of rows with those of a stream's tokens, which were picked from them; of NumPy in place."""
    xp = namespace(x=x)
    if not isinstance(x, np.ndarray) or how.rows is not None:
        return x + ordered(xp, pick(y, how), stream)
    rows = ordered(xp, x, stream)
    rows[..., how.before : how.before + how.stop - how.start, :] += y[..., how.start : how.stop, :]
    return x


def added(one: MapCotangent | None, other: MapCotangent) -> MapCotangent:
    """Return the sums of the cotangents of a map's numbers, where there are any; of the rows, those of the other."""
    if one is None:
        return other
    numbers = (b if a is None else a if b is None else a + b for a, b in zip(one[1:], other[1:], strict=True))
    return MapCotangent(other.x, *numbers)


def of_log_scale(
    xp: ModuleType, x: Array, spec: MapSpec, dr: Array, learn: bool, shares: Array | None
) -> MapCotangent | None:
    """Return cotangents of rows x, and of the numbers in their log scales, from those (..., n) of the log scales.

    The shares of features that sum to 1 may be known: an array that is used up.
    """
    if spec.row_weights is None and not spec.scales_apart:
        return None
    x = xp.astype(x, dr.dtype, copy=False)
    dr = sum_onto(xp, dr, tuple(x.shape[:-1]))[..., None]
    dead = dr == 0  # what has no cotangent may be anything
    host = isinstance(x, np.ndarray)
    if spec.normalised:
        if host and shares is not None:
            lost = np.multiply(shares, -dr, out=shares)
            lost[dead[..., 0]] = 0
        else:
            lost = -dr * (shares_of_rows(x, spec) if shares is None else shares)
            lost = xp.where(dead, xp.zeros_like(lost), lost)
        cotangent = of_logs(x, spec, lost, learn)
        return cotangent if spec.offset is not None else cotangent._replace(offset=None)
    if not host or dead.any():
        x = xp.where(dead, xp.zeros_like(x), x)
    weights = None
    if learn and spec.row_weights is not None:
        weights = xp.sum(xp.reshape(dr * x * x, (-1, x.shape[-1])), axis=0)
    dx = slope(x, spec)
    if isinstance(dx, np.ndarray) and dx.dtype == dr.dtype:
        dx *= dr
    else:
        dx = dx * dr
    return MapCotangent(dx, row_weights=weights)
