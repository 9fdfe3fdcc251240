r"""Gated linear attention in array-API, by chunks of tokens.

Within a chunk that begins at a state S_0, with E_ij the decay between tokens j and i, E_ij^- that up to before i, G_i
the decay from the chunk's start to i:

.. math::

    (I - B) R &= (a G^-) S_0 + A v, \quad A_{ij} = a_i E^-_{ij} k_j,\; B_{ij} = a_i E^-_{ij} b_j \; (j < i) \\
    O &= (q G) S_0 + P v + P^b R, \quad P_{ij} = q_i E_{ij} k_j,\; P^b_{ij} = q_i E_{ij} b_j \; (j \le i)

A delta rule has a = beta e^g k and b = -k. Nothing is written in place.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, namespace, zero_masked, zeros
from kernattn._arrays.shapes import broadcast
from kernattn.ops.causal.reference import count_segments

CHUNK = 16
EPSILON = 1e-6  # of squared norms, as fla and transformers add it
LARGE = 1e15


class Tokens(NamedTuple):
    """Rows (..., n, c) in the accumulation dtype; masks, segments, scale and norms are in them."""

    q: Array
    k: Array
    v: Array
    decay: Array  # its logarithm, (..., n, d) or (..., n, 1)
    a: Array | None
    b: Array | None
    fresh: Array | None  # (..., n, 1), whether a segment begins


class Decays(NamedTuple):
    """Decays within a chunk of C tokens, of every channel, or of all in one."""

    between: Array  # (..., C, C, d | 1): of what token j wrote, when token i has come; 0 where j > i
    until: Array  # (..., C, C, d | 1): and just before i
    since: Array  # (..., C, d | 1): of the state at the start, when token i has come
    before: Array  # (..., C, d | 1): and just before i
    left: Array  # (..., C, d | 1): of what token j wrote, at the end


class Chunk(NamedTuple):
    """What a chunk computes from the state at its start; the last four are None without a and b."""

    decays: Decays
    p: Array
    out: Array
    after: Array
    p_b: Array | None = None
    m: Array | None = None
    m_b: Array | None = None
    r: Array | None = None


@np.errstate(over="ignore", invalid="ignore")
def gated(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    gk: Array | None,
    beta: Array | None,
    read: Array | None,
    write: Array | None,
    scale: float,
    l2_normalise: bool,
    state: Array | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Array, Array]:
    """Return the outputs of all tokens, and the state after the last."""
    xp = namespace(v=v)
    tokens = lower(xp, q, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, segment_ids)
    chunks = compute_chunks(xp, tokens, state, alike=True)
    return xp.astype(xp.concat([chunk.out for chunk in chunks], axis=-2), v.dtype, copy=False), chunks[-1].after


def compute_chunks(xp: ModuleType, tokens: Tokens, state: Array | None, *, alike: bool = False) -> list[Chunk]:
    """Return all chunks, one after the other.

    From the first token on that is not finite, or writes what is not, each token is a chunk: products of a chunk have
    zeros where a token does not see another, and zero times NaN is NaN. Traced arrays cannot tell. With `alike`, a
    chunk that ends early is computed as a whole one, so that its rows keep their bits.
    """
    after = zeros(xp, (tokens.q.shape[-1], tokens.v.shape[-1]), tokens.v.dtype, tokens.v) if state is None else state
    n, start, chunks = tokens.q.shape[-2], 0, list[Chunk]()
    sound = 0 if tokens.fresh is not None else finite_tokens(xp, tokens, state)
    while start < n:
        whole = min(CHUNK, n - start)
        rows = max(1, min(whole, sound - start))
        part = cut(tokens, start, rows)
        longer = _lengthen(xp, part, whole) if alike and start < sound else part
        chunk = compute_chunk(xp, longer, left_over(xp, part, after))
        if sound > start and anywhere(~xp.isfinite(chunk.after)):
            written = rows if chunk.r is None else _first(xp, ~xp.isfinite(chunk.r))
            sound = start
            if written < rows and rows > 1:
                sound += written
                continue
        chunks.append(chunk._replace(out=chunk.out[..., :rows, :]))
        start, after = start + rows, chunk.after
    return chunks


def finite_tokens(xp: ModuleType, tokens: Tokens, state: Array | None) -> int:
    """Return how many tokens come before one that is not finite, none after a state that is not."""
    if state is not None and anywhere(~xp.isfinite(state)):
        return 0
    spoiled = [~xp.isfinite(x) for x in (tokens.k, tokens.v, tokens.a, tokens.b) if x is not None]
    return min(_first(xp, x) for x in (*spoiled, xp.isnan(tokens.decay)))


def _first(xp: ModuleType, condition: Array) -> int:
    """Return the first row of (..., n, c) in which a condition is true somewhere, n where it is nowhere."""
    if not anywhere(condition):
        return int(condition.shape[-2])
    rows = xp.any(condition, axis=tuple(axis for axis in range(condition.ndim) if axis != condition.ndim - 2))
    return int(xp.argmax(xp.astype(rows, xp.int32)))


def _lengthen(xp: ModuleType, tokens: Tokens, rows: int) -> Tokens:
    """Return a chunk of so many rows, of which the last ones are zeros: nothing fades, and nothing is written."""

    def longer(x: Array | None) -> Array | None:
        if x is None or x.shape[-2] == rows:
            return x
        return xp.concat([x, zeros(xp, (*x.shape[:-2], rows - x.shape[-2], x.shape[-1]), x.dtype, x)], axis=-2)

    return Tokens(*map(longer, tokens))


def left_over(xp: ModuleType, tokens: Tokens, state: Array) -> Array:
    """Return the state at the start of a chunk; of one token, with 0 in channels that let nothing remain of it."""
    if tokens.decay.shape[-2] > 1:
        return state
    forgets = xp.exp(tokens.decay) == 0
    if tokens.a is not None:
        forgets = forgets & (tokens.a == 0)
    return xp.where(xp.matrix_transpose(forgets), 0.0, state)


def cut(tokens: Tokens, start: int, size: int) -> Tokens:
    """Return the chunk of tokens that begins at `start`."""
    stop = min(start + size, tokens.q.shape[-2])
    return Tokens(*(None if x is None else x[..., start:stop, :] for x in tokens))


def lower(
    xp: ModuleType,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    gk: Array | None,
    beta: Array | None,
    read: Array | None,
    write: Array | None,
    scale: float,
    l2_normalise: bool,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> Tokens:
    """Return tokens as the recurrence takes them."""
    dtype = accumulation_dtype(xp, v)

    def rows(x: Array) -> Array:
        return zero_masked(xp.astype(x, dtype, copy=False), key_mask)

    q, k, v = xp.astype(q, dtype, copy=False), rows(k), rows(v)
    if l2_normalise:
        q, k = q * inverse_norm(xp, q), k * inverse_norm(xp, k)
    decay = log_decays(xp, g, gk, key_mask, xp.zeros_like(k[..., :1]))
    fresh = None if segment_ids is None else segment_starts(xp, segment_ids)[..., None]
    if fresh is not None:
        decay = xp.where(fresh, -xp.inf, decay)
    a = b = None
    if beta is not None:
        strength = rows(beta[..., None])
        a, b, v = xp.exp(decay) * strength * k, -k, strength * v
    elif read is not None and write is not None:
        a, b = rows(read), rows(write)
    if a is not None and fresh is not None:
        a = xp.where(fresh, xp.zeros_like(a), a)
    return Tokens(q * scale, k, v, decay, a, b, fresh)


@np.errstate(over="ignore")
def log_decays(xp: ModuleType, g: Array | None, gk: Array | None, key_mask: Array | None, none: Array) -> Array:
    """Return the logs of decays (..., n, d), or (..., n, 1) without gk, added to `none`, 0 where there is no key."""
    total = none
    for logs in (None if g is None else g[..., None], gk):
        if logs is not None:
            total = total + zero_masked(xp.astype(logs, total.dtype, copy=False), key_mask)
    return total


def inverse_norm(xp: ModuleType, x: Array) -> Array:
    """Return 1 over the norm of rows (..., n, 1)."""
    peak = xp.max(xp.abs(x), axis=-1, keepdims=True)
    unit = xp.where(peak > LARGE, peak, xp.ones_like(peak))  # of rows whose square may be no float
    y = x / unit
    return (xp.sum(y * y, axis=-1, keepdims=True) + EPSILON / unit / unit) ** -0.5 / unit


def segment_starts(xp: ModuleType, ids: Array) -> Array:
    """Return which tokens (..., n) are the first of a run of equal ids, but for that of the first run."""
    segment = count_segments(xp, ids)
    return segment != xp.concat([xp.zeros_like(segment[..., :1]), segment[..., :-1]], axis=-1)


def compute_chunk(xp: ModuleType, tokens: Tokens, state: Array) -> Chunk:
    """Return the state after a chunk from that at its start."""
    q, k, v, _, a, b, _ = tokens
    decays = decays_of(xp, tokens.decay)
    p = scores(xp, q, k, decays.between)
    out = read_start(xp, q, decays.since, state) + p @ v
    last = xp.matrix_transpose(decays.since[..., -1:, :])  # (..., d | 1, 1)
    after = fade(xp, last, state) + xp.matrix_transpose(k * decays.left) @ v
    if a is None or b is None:
        return Chunk(decays, p, out, after)
    p_b, m, m_b = scores(xp, q, b, decays.between), scores(xp, a, k, decays.until), scores(xp, a, b, decays.until)
    if tokens.fresh is not None:
        decays = decays._replace(before=xp.where(tokens.fresh, 0.0, decays.before))
    r = substitute(xp, m_b, read_start(xp, a, decays.before, state) + m @ v)
    after = after + xp.matrix_transpose(b * decays.left) @ r
    return Chunk(decays, p, out + p_b @ r, after, p_b, m, m_b, r)


def read_start(xp: ModuleType, x: Array, decay: Array, state: Array) -> Array:
    """Return the reads of rows from the state at the start: 0 of one that has decayed to nothing."""
    left = xp.any(decay != 0, axis=-1, keepdims=True)
    return xp.where(left, (x * decay) @ state, 0.0)


def fade(xp: ModuleType, decay: Array, x: Array) -> Array:
    """Return decay x, 0 where there is nothing left of what may be anything."""
    return xp.where(decay == 0, 0.0, decay * x)


def decays_of(xp: ModuleType, logs: Array) -> Decays:
    """Return the decays of a chunk: sums of logs over segments, never differences of sums from the start."""
    size = logs.shape[-2]
    places = xp.cumulative_sum(xp.ones_like(logs[..., :, 0]), axis=-1)  # (..., C), beside the logs
    later = places[..., :, None] > places[..., None, :]
    own = (places[..., :, None] >= places[..., None, :])[..., None]
    terms = xp.where(later[..., None], logs[..., :, None, :], 0.0)  # (..., s, j, d): what follows token j
    between = xp.where(own, xp.exp(xp.cumulative_sum(terms, axis=-3)), 0.0)
    none = xp.zeros_like(between[..., :1, :, :])
    since = xp.exp(xp.cumulative_sum(logs, axis=-2))
    return Decays(
        between,
        xp.where(later[..., None], xp.concat([none, between[..., :-1, :, :]], axis=-3), 0.0),
        since,
        xp.concat([xp.ones_like(since[..., :1, :]), since[..., :-1, :]], axis=-2),
        between[..., size - 1, :, :],
    )


def scores(xp: ModuleType, x: Array, y: Array, decay: Array) -> Array:
    """Return sum_c x_ic decay_ijc y_jc, (..., C, C); what is decayed to nothing counts as 0."""
    if decay.shape[-1] > 1:
        return xp.sum(x[..., :, None, :] * decay * y[..., None, :, :], axis=-1)
    decay = decay[..., 0]
    return fade(xp, decay, x @ xp.matrix_transpose(y))


def substitute(xp: ModuleType, m: Array, x: Array, *, backwards: bool = False) -> Array:
    """Return (I - m)^{-1} x for an m below its diagonal, row after row, or with the transpose of m, from the last."""
    size, lead = m.shape[-1], broadcast(m=tuple(m.shape[:-2]), x=tuple(x.shape[:-2]))
    x = xp.broadcast_to(x, (*lead, *x.shape[-2:]))
    done: list[Array] = []
    for step in range(size):
        i = size - 1 - step if backwards else step
        row = x[..., i : i + 1, :]
        if done:
            known = xp.concat(done[::-1] if backwards else done, axis=-2)
            factors = xp.matrix_transpose(m[..., i + 1 :, i : i + 1]) if backwards else m[..., i : i + 1, :i]
            row = row + factors @ known
        done.append(row)
    return xp.concat(done[::-1] if backwards else done, axis=-2)
