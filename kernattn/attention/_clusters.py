"""Which tokens clusters bring together, found on the host: those nearest to a centroid, by cosines."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._plans.intervals import part_of
from kernattn._plans.parts import Part
from kernattn._plans.plan import Plan

Integers = NDArray[np.int64]
Floats = NDArray[Any]
Mask = NDArray[np.bool_] | None

SCORES = 1 << 20  # products of tokens and centroids that are made at once


class Members(NamedTuple):
    """What centroids take of each head, as copies of tokens, and the plan of these copies."""

    queries: Integers  # (H, c w), ascending in each cluster
    keys: Integers
    plan: Plan
    there: Mask  # (H, c w), which copies of keys there are; None for all
    sees: NDArray[np.bool_]  # (H, c w), whether a copy of a query sees a key


def plan_nearest(q: Floats, k: Floats, points: Floats, window: int, causal: bool, shown: Mask) -> Plan:
    """Return the plan of clusters in which queries (H, n) see `window` keys (H, l) about them, of those shown."""
    n, length, wide = q.shape[1], k.shape[1], k.shape[1] + 1
    heads, closest = [], _find_closest(k, points)
    if shown is not None:
        closest = np.where(shown, closest, points.shape[1])  # a cluster of no query
    for of_q, of_k in zip(_find_closest(q, points), closest, strict=True):
        rows, keys = np.argsort(of_q, kind="stable"), np.argsort(of_k, kind="stable")
        clusters, tokens = of_q[rows], rows + length - n
        begin, end = (np.searchsorted(of_k[keys], clusters, side=side) for side in ("left", "right"))
        wanted = clusters * wide + np.clip(tokens, -1, length)
        at = np.searchsorted(of_k[keys] * wide + keys, wanted, side="right" if causal else "left")
        at = np.clip(at, begin, end)  # of a query that stands before all keys
        low = at - window if causal else np.minimum(at - window // 2, end - window)
        low = np.maximum(low, begin)
        high = at if causal else np.minimum(low + window, end)
        cuts = np.flatnonzero(np.append(True, clusters[1:] != clusters[:-1]))
        part = part_of(low[None], high[None], np.arange(n + 1), length, cuts=cuts, queries=rows, keys=keys)
        heads.append((part,) if len(part.visits) else ())
    return Plan("parts", n, length, tuple(heads))


def take_top(q: Floats, k: Floats, points: Floats, window: int, causal: bool, shown: Mask) -> Members:
    """Return the tokens nearest to each centroid, of those shown: keys (H, l), and queries where there are as many."""
    of_q = shown if q.shape[1] == k.shape[1] else None
    queries, keys = (_take_by(x, points, min(window, x.shape[1]), of) for x, of in ((q, of_q), (k, shown)))
    heads, c, size = keys.shape
    length, copies = k.shape[1], queries.shape[-1]
    there = None if shown is None else np.take_along_axis(shown, keys.reshape(heads, -1), axis=1)
    taken = queries.reshape(heads, -1), keys.reshape(heads, -1)
    low = np.repeat(np.arange(c) * size, copies)
    if not causal:
        plan = Plan("parts", c * copies, c * size, ((_diagonal_part(c, copies, size),),))
        return Members(
            *taken, plan, there, _see(low, np.broadcast_to(low + size, taken[0].shape), taken[0], of_q, there)
        )
    tokens = np.maximum(queries + length - q.shape[1], -1)
    cluster = np.arange(heads * c).reshape(heads, c, 1) * (length + 1) + 1
    high = np.searchsorted((keys + cluster).reshape(-1), (tokens + cluster).reshape(-1), side="right")
    high = high.reshape(heads, c * copies) - np.arange(heads)[:, None] * (c * size)
    parts = [
        part_of(low[None], each[None], np.arange(c * copies + 1), c * size, cuts=np.arange(c) * copies) for each in high
    ]
    plan = Plan("parts", c * copies, c * size, tuple((part,) if len(part.visits) else () for part in parts))
    return Members(*taken, plan, there, _see(low, high, taken[0], of_q, there))


def _see(low: Integers, high: Integers, queries: Integers, of_q: Mask, there: Mask) -> NDArray[np.bool_]:
    """Return which copies of queries (H, r) are shown and see one of the keys from low (r,) to high (H, r) there."""
    sees = high > low
    if there is not None:
        counts: Integers = np.cumsum(there, axis=1) - there
        counts = np.append(counts, np.sum(there, axis=1, keepdims=True), axis=1)
        ends = np.broadcast_to(low, high.shape), np.maximum(low, high)
        sees = np.subtract(*(np.take_along_axis(counts, end, axis=1) for end in ends)) < 0
    return sees if of_q is None else sees & np.take_along_axis(of_q, queries, axis=1)


def average_clusters(x: Floats, points: Floats) -> Floats:
    """Return the mean of the tokens nearest to each centroid, the centroid where there are none."""
    moved = points.copy()
    for rows, closest, own in zip(x, _find_closest(x, points), moved, strict=True):
        order = np.argsort(closest, kind="stable")
        there, begins, counts = np.unique(closest[order], return_index=True, return_counts=True)
        own[there] = np.add.reduceat(rows[order], begins, axis=0) / counts[:, None]
    return moved


def normalise_rows(x: Floats) -> Floats:
    """Return x / |x|; a row of zeros stays."""
    top = np.max(np.abs(x), axis=-1, keepdims=True)
    x = x / np.where(top > 0, top, 1)
    norm = np.sqrt(np.sum(x * x, axis=-1, keepdims=True))
    result: Floats = x / np.where(norm > 0, norm, 1)
    return result


def group_by_head(x: Floats, heads: int) -> Floats:
    """Return tokens (..., n, d) as (heads, n', d), those of all other leading axes together."""
    if heads > 1:
        x = np.moveaxis(np.broadcast_to(x, (*x.shape[:-3], heads, *x.shape[-2:])), -3, 0)
    return x.reshape(heads, -1, x.shape[-1])


def _find_closest(x: Floats, points: Floats) -> Integers:
    """Return the centroid nearest to each token (H, n), the first of equals."""
    directions = np.swapaxes(normalise_rows(points), -1, -2)  # (H, d, c)
    step = max(1, SCORES // (len(x) * points.shape[1]))
    with np.errstate(under="ignore", invalid="ignore"):
        nearest = [np.argmax(x[:, at : at + step] @ directions, axis=-1) for at in range(0, x.shape[1], step)]
    return np.concatenate(nearest, axis=-1)


@lru_cache(maxsize=8)
def _diagonal_part(c: int, rows: int, columns: int) -> Part:
    """Return the part of c blocks on the diagonal."""
    low = np.arange(c)[None] * columns
    return part_of(low, low + columns, np.arange(c + 1) * rows, c * columns, cuts=np.arange(c) * rows)


def _take_by(x: Floats, points: Floats, window: int, shown: Mask) -> Integers:
    """Return the tokens of largest cosine with each centroid, (H, c, window), ascending; those not shown last."""
    across, opposites = np.swapaxes(normalise_rows(x), -1, -2), -normalise_rows(points)
    step, tokens = max(1, SCORES // (len(x) * x.shape[1])), []
    for at in range(0, points.shape[1], step):
        with np.errstate(under="ignore", invalid="ignore"):
            scores = opposites[:, at : at + step] @ across
        if shown is not None:
            scores = np.where(shown[:, None], scores, np.inf)
        tokens.append(_find_least(scores, window))
    return np.concatenate(tokens, axis=1)


def _find_least(scores: Floats, window: int) -> Integers:
    """Return where the least `window` numbers of each row stand, ascending; of equals any, and NaN last."""
    last = np.partition(scores, window - 1, axis=-1)[..., window - 1 : window]
    there = scores <= last
    if np.all(np.count_nonzero(there, axis=-1) == window):
        tokens: Integers = np.flatnonzero(there) % scores.shape[-1]
        return tokens.reshape(*scores.shape[:-1], window)
    return np.sort(np.argpartition(scores, window - 1, axis=-1)[..., :window], axis=-1)
