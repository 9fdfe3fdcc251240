"""Cotangents of gated linear attention in array-API: chunks from the last to the first, each computed again."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._sums.cotangents import sum_onto
from kernattn.ops.gated.reference import (
    Chunk,
    Tokens,
    compute_chunks,
    cut,
    fade,
    inverse_norm,
    left_over,
    lower,
    segment_starts,
    substitute,
)

Cotangents = tuple[Array | None, ...]


class Sides(NamedTuple):
    """Cotangents of the tokens of a chunk, beside `Tokens`, and that of the state at its start."""

    tokens: Tokens
    state: Array


@np.errstate(over="ignore", invalid="ignore")
def gated_vjp(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array | None, after: Array | None,
) -> Cotangents:  # fmt: skip
    """Return the cotangents of q, k, v, g, gk, beta, read, write and the state."""
    xp = namespace(v=v)
    dtype = accumulation_dtype(xp, v)
    out = None if out is None else xp.astype(out, dtype, copy=False)
    key_mask = heard_tokens(xp, out, after, key_mask, lead_of(k, v, g, gk, beta, read, write))
    heard = heard_queries(xp, xp.astype(q, dtype, copy=False), out)
    tokens = lower(xp, heard, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, segment_ids)
    chunks = compute_chunks(xp, tokens, state)
    g_state = xp.zeros_like(chunks[-1].after) if after is None else after
    sides, stop = list[Tokens](), tokens.q.shape[-2]
    for at in reversed(range(len(chunks))):
        rows = chunks[at].out.shape[-2]
        start, stop = stop - rows, stop - rows
        before = chunks[at - 1].after if at else xp.zeros_like(chunks[0].after) if state is None else state
        g_out = xp.zeros_like(chunks[at].out)
        if out is not None:
            g_out = out[..., start : start + rows, :]
        chunk = cut(tokens, start, rows)
        side, g_state = pull_chunk(xp, chunk, chunks[at], left_over(xp, chunk, before), g_out, g_state)
        sides.append(side)
    whole = Tokens(*(None if x[0] is None else xp.concat(x[::-1], axis=-2) for x in zip(*sides, strict=True)))
    own = raise_tokens(xp, whole, heard, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, segment_ids)
    of_state = None if state is None else sum_onto(xp, g_state, tuple(state.shape))
    return xp.astype(sum_onto(xp, own[0], tuple(q.shape)), q.dtype, copy=False), *own[1:], of_state


def heard_queries(xp: ModuleType, q: Array, out: Array | None) -> Array:
    """Return queries, 0 where outputs have no cotangent: what stands there may be anything."""
    if out is None:
        return xp.zeros_like(q)
    heard = xp.any(out != 0, axis=-1, keepdims=True)
    return q if isinstance(q, np.ndarray) and heard.all() else xp.where(heard, q, xp.zeros_like(q))


def lead_of(
    k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None, write: Array | None
) -> tuple[int, ...]:
    """Return the leading axes of states."""
    rows = {"k": k, "v": v, "gk": gk, "read": read, "write": write}
    leads = {name: tuple(x.shape[:-2]) for name, x in rows.items() if x is not None}
    numbers = {name: tuple(x.shape[:-1]) for name, x in (("g", g), ("beta", beta)) if x is not None}
    return broadcast(**leads, **numbers)


def heard_tokens(
    xp: ModuleType, out: Array | None, after: Array | None, key_mask: Array | None, lead: tuple[int, ...]
) -> Array | None:
    """Return the mask without tokens of which nothing that has a cotangent knows: what stands there may be anything.

    They come after the last output of a head that has one, where the state has none.
    """
    if out is None:
        return key_mask

    def told(x: Array, axes: tuple[int, ...], tail: int) -> Array:
        """Return how many readers of each head have a cotangent that is not 0 along these axes."""
        count = xp.astype(xp.any(x != 0, axis=axes), xp.int32)
        return sum_onto(xp, count, (*lead, *count.shape[count.ndim - tail :]))

    last = told(out[..., -1:, :], (-1,), 1)
    if after is not None:
        last = last + told(after, (-2, -1), 0)[..., None]
    if not anywhere(last == 0):
        return key_mask
    heard = xp.flip(xp.cumulative_sum(xp.flip(told(out, (-1,), 1), axis=-1), axis=-1), axis=-1)
    if after is not None:
        heard = heard + told(after, (-2, -1), 0)[..., None]
    return heard > 0 if key_mask is None else (heard > 0) & key_mask


def pull_chunk(xp: ModuleType, tokens: Tokens, chunk: Chunk, state: Array, g_out: Array, g_after: Array) -> Sides:
    """Return the cotangents of a chunk's tokens, and of the state at its start."""
    q, k, v, _, a, b, fresh = tokens
    t, decays, lead = xp.matrix_transpose, chunk.decays, tuple(g_after.shape[:-2])

    def own(x: Array) -> Array:
        """Return x summed over the queries that read one state."""
        return sum_onto(xp, x, (*lead, *x.shape[x.ndim - 2 :]))

    last = t(decays.since[..., -1:, :])
    of_p = g_out @ t(v)
    of_start = fade(xp, decays.since, g_out @ t(state))  # of q
    of_left = (v @ t(g_after)) * decays.left  # of k
    dq = of_start + pull_left(xp, of_p, k, decays.between)
    dk = of_left + own(pull_right(xp, of_p, q, decays.between))
    dv = own(t(chunk.p) @ g_out) + (k * decays.left) @ g_after
    g_state = own(t(q * decays.since) @ g_out) + fade(xp, last, g_after)
    of_decays = DecayCotangents(xp, decays.since)
    of_decays.from_start(own(q * of_start))
    of_decays.to_end(k * of_left)
    of_decays.between(of_p, q, k, decays.between, own)
    of_decays.everywhere(xp.sum(fade(xp, last, state * g_after), axis=-1)[..., None, :])
    da = db = None
    if a is not None and b is not None and chunk.r is not None and chunk.m is not None and chunk.m_b is not None:
        r = chunk.r
        y = own(t(chunk.p_b) @ g_out) + (b * decays.left) @ g_after
        y = substitute(xp, chunk.m_b, y, backwards=True)
        of_p_b, of_m, of_m_b = g_out @ t(r), y @ t(v), y @ t(r)
        of_before, of_left_b = fade(xp, decays.before, y @ t(state)), (r @ t(g_after)) * decays.left
        dv, g_state = dv + t(chunk.m) @ y, g_state + t(a * decays.before) @ y
        dq = dq + pull_left(xp, of_p_b, b, decays.between)
        dk = dk + pull_right(xp, of_m, a, decays.until)
        da = of_before + pull_left(xp, of_m, k, decays.until) + pull_left(xp, of_m_b, b, decays.until)
        db = of_left_b + own(pull_right(xp, of_p_b, q, decays.between)) + pull_right(xp, of_m_b, a, decays.until)
        of_decays.from_start(a * of_before, before=True)
        of_decays.to_end(b * of_left_b)
        of_decays.between(of_p_b, q, b, decays.between, own)
        of_decays.between(of_m, a, k, decays.until, own, before=True)
        of_decays.between(of_m_b, a, b, decays.until, own, before=True)
    if fresh is not None:  # a chunk of one token
        g_state = xp.where(fresh, 0.0, g_state)
    return Sides(Tokens(dq, dk, dv, of_decays.total, da, db, None), g_state)


def pull_left(xp: ModuleType, cotangent: Array, y: Array, decay: Array) -> Array:
    """Return the cotangent of x from that of `scores` of x and y."""
    if decay.shape[-1] == 1:
        return (cotangent * decay[..., 0]) @ y
    return xp.sum(cotangent[..., None] * decay * y[..., None, :, :], axis=-2)


def pull_right(xp: ModuleType, cotangent: Array, x: Array, decay: Array) -> Array:
    """Return the cotangent of y."""
    if decay.shape[-1] == 1:
        return xp.matrix_transpose(cotangent * decay[..., 0]) @ x
    return xp.sum(cotangent[..., None] * decay * x[..., :, None, :], axis=-3)


class DecayCotangents:
    """Cotangents of the log decays of a chunk, (..., C, d | 1), summed from what each of them decays."""

    def __init__(self, xp: ModuleType, like: Array) -> None:
        self.xp, self.channels = xp, like.shape[-1]
        self.total = xp.zeros_like(like)

    def _add(self, terms: Array) -> None:
        self.total = self.total + (terms if self.channels > 1 else self.xp.sum(terms, axis=-1, keepdims=True))

    def everywhere(self, terms: Array) -> None:
        """Add terms (..., 1, d) that all logs decay."""
        self._add(terms)

    def from_start(self, terms: Array, *, before: bool = False) -> None:
        """Add terms (..., i, d) that the logs of tokens up to i decay, or up to before i."""
        sums = self.xp.flip(self.xp.cumulative_sum(self.xp.flip(terms, axis=-2), axis=-2), axis=-2)
        self._add(self._next(sums, -2) if before else sums)

    def to_end(self, terms: Array) -> None:
        """Add terms (..., j, d) that the logs of tokens after j decay."""
        self._add(self._previous(self.xp.cumulative_sum(terms, axis=-2)))

    def between(
        self,
        cotangent: Array,
        x: Array,
        y: Array,
        decay: Array,
        own: Callable[[Array], Array],
        *,
        before: bool = False,
    ) -> None:
        """Add terms of `scores`, which the logs of tokens after j and up to i decay, or up to before i."""
        xp = self.xp
        if self.channels > 1:
            terms = cotangent[..., None] * x[..., :, None, :] * decay * y[..., None, :, :]  # (..., i, j, d)
        else:
            terms = (cotangent * fade(xp, decay[..., 0], x @ xp.matrix_transpose(y)))[..., None]
        later = xp.flip(xp.cumulative_sum(xp.flip(terms, axis=-3), axis=-3), axis=-3)  # (..., s, j, d): of all i >= s
        later = self._next(later, -3) if before else later
        places = xp.cumulative_sum(xp.ones_like(terms[..., 0, :, 0]), axis=-1)
        earlier = (places[..., :, None] > places[..., None, :])[..., None]  # j < s
        self._add(own(xp.sum(xp.where(earlier, later, 0.0), axis=-2)))

    def _next(self, x: Array, axis: int) -> Array:
        tail = (slice(None),) * (-axis - 1)
        return self.xp.concat([x[..., 1:, *tail], self.xp.zeros_like(x[..., :1, *tail])], axis=axis)

    def _previous(self, x: Array) -> Array:
        return self.xp.concat([self.xp.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2)


def raise_tokens(
    xp: ModuleType,
    sides: Tokens,
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
) -> Cotangents:
    """Return the cotangents of what `lower` took from those of what it gave."""
    own = lower(xp, q, k, v, g, gk, None, None, None, 1.0, l2_normalise, key_mask, segment_ids)
    dq, dk, dv, decay, da, db, _ = sides
    d_beta = None
    if beta is not None and da is not None and db is not None:
        strength = xp.astype(beta, own.k.dtype, copy=False)[..., None]
        if key_mask is not None:
            strength = xp.where(key_mask[..., None], strength, xp.zeros_like(strength))
        faded = xp.exp(own.decay)
        decay = decay + onto_channels(xp, da * faded * strength * own.k, decay)
        d_beta = xp.sum(da * faded * own.k, axis=-1) + xp.sum(dv * own.v, axis=-1)
        dk, dv = dk + da * faded * strength - db, strength * dv
    fresh = None if segment_ids is None else segment_starts(xp, segment_ids)[..., None]
    if fresh is not None:
        decay = xp.where(fresh, xp.zeros_like(decay), decay)
        da = None if da is None else xp.where(fresh, xp.zeros_like(da), da)
    dq = dq * scale
    if l2_normalise:
        dq, dk = of_direction(xp, q, own.q, dq), of_direction(xp, k, own.k, dk)

    def as_given(x: Array | None, y: Array | None) -> Array | None:
        """Return the cotangent y of an argument in its shape and dtype, 0 where there is no key."""
        if x is None or y is None:
            return None
        if key_mask is not None:
            mask = key_mask if x is g or x is beta else key_mask[..., None]
            y = xp.where(mask, y, xp.zeros_like(y))
        return xp.astype(sum_onto(xp, y, tuple(x.shape)), x.dtype, copy=False)

    d_g = xp.sum(decay, axis=-1)
    return (
        xp.astype(sum_onto(xp, dq, tuple(q.shape)), q.dtype, copy=False),
        as_given(k, dk), as_given(v, dv), as_given(g, d_g), as_given(gk, decay), as_given(beta, d_beta),
        as_given(read, da), as_given(write, db),
    )  # fmt: skip


def onto_channels(xp: ModuleType, terms: Array, like: Array) -> Array:
    """Return terms (..., n, d), or their sums where there is one decay for all channels."""
    return xp.sum(terms, axis=-1, keepdims=True) if like.shape[-1] == 1 else terms


def of_direction(xp: ModuleType, x: Array, unit: Array, cotangent: Array) -> Array:
    """Return the cotangent of rows from that of what they are over their norms."""
    x = xp.astype(x, unit.dtype, copy=False)
    return inverse_norm(xp, x) * (cotangent - unit * xp.sum(unit * cotangent, axis=-1, keepdims=True))
