"""Exact attention over the parts of a plan by array operations: tiles that visit as much are answered side by side."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, anywhere, constant, indices
from kernattn._arrays.shapes import broadcast
from kernattn._plans.parts import SIDE, Part, visits_of
from kernattn._sums.peaked import Normaliser, PeakedSum, empty, finite, log_normaliser, merge, quotient

Integers: TypeAlias = NDArray[np.int64]

TILES = 32  # that are answered side by side, at most


def answer_heads(
    xp: ModuleType,
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    heads: tuple[tuple[Part, ...], ...],
    mask: Array | None,
    bias: Array | None,
    pairs: Array | None = None,
) -> tuple[Array, Array]:
    """Return outputs and log normalisers; each of several heads has parts of its own, along the last leading axis."""
    if len(heads) == 1:
        return _answer(xp, q, k, v, scale, heads[0], mask, bias, pairs)
    answers = []
    for head, parts in enumerate(heads):
        of_q, of_k, of_v, *rows = each_head(head, (3, 3, 3, 2, 2, 3), q, k, v, mask, bias, pairs)
        answers.append(_answer(xp, of_q, of_k, of_v, scale, parts, *rows))
    lead = broadcast(q=tuple(q.shape[:-2]), k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]))[:-1]
    outs, logs = ([xp.broadcast_to(x, (*lead, *x.shape[x.ndim - axes :])) for x in found_] for found_, axes in (
        ([out for out, _ in answers], 2), ([log for _, log in answers], 1)
    ))  # fmt: skip
    return xp.stack(outs, axis=-3), xp.stack(logs, axis=-2)


def each_head(head: int, axes: tuple[int, ...], *arrays: Array | None) -> list[Any]:
    """Return one head of each array, whose heads stand so many axes from its end."""
    return [None if x is None else _head(x, head, count) for x, count in zip(arrays, axes, strict=True)]


def _head(x: Array, head: int, axes: int) -> Array:
    """Return one head of an array whose last leading axis, if there is one, stands `axes` from its end."""
    if x.ndim < axes:
        return x
    rest = (slice(None),) * (axes - 1)
    return x[(..., head if x.shape[-axes] > 1 else 0, *rest)]


def _answer(
    xp: ModuleType,
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    parts: tuple[Part, ...],
    mask: Array | None,
    bias: Array | None,
    pairs: Array | None,
) -> tuple[Array, Array]:
    lead = broadcast(q=tuple(q.shape[:-2]), k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]))
    n, known, q = q.shape[-2], anywhere(xp.all(xp.isfinite(v))), q * scale

    def begin(rows: Integers) -> Visit:
        queries = rows_of(xp, q, rows)
        return lambda keys, seen: _visit(xp, queries, k, v, rows, keys, seen, mask, bias, pairs, known)

    total = sums_over(xp, parts, begin, empty(xp, lead, n, n, v.shape[-1], q.dtype, q))
    return quotient(xp, total, v.dtype), log_normaliser(xp, Normaliser(total.peak, total.z)).log


Visit: TypeAlias = Callable[[Integers, NDArray[np.bool_]], PeakedSum]


def sums_over(
    xp: ModuleType, parts: tuple[Part, ...], begin: Callable[[Integers], Visit], total: PeakedSum
) -> PeakedSum:
    """Return `total`, a row per query, and what visits add: `begin(rows)` (b, r) makes `visit(keys, seen)` (b, c)."""
    for part in parts:
        total = merge(xp, total, _sums(xp, part, begin, total))
    return total


def _sums(xp: ModuleType, part: Part, begin: Callable[[Integers], Visit], like: PeakedSum) -> PeakedSum:
    """Return the sums of every row over one part."""
    *lead, n, e = like.s.shape
    sums = [empty(xp, tuple(lead), 1, 1, e, like.s.dtype, like.s)]  # of a row that is in no tile
    place, at = np.zeros(n, np.int64), 1
    for tiles, visits in _batches(part):
        first, count = part.tiles[tiles, 0], part.tiles[tiles, 1]
        there = np.arange(SIDE) < count[:, None]
        rows = first[:, None] + np.minimum(np.arange(SIDE), count[:, None] - 1)
        rows = rows if part.queries is None else part.queries[rows]
        place[rows[there]] = at + np.flatnonzero(there)
        at += there.size
        visit = begin(rows)
        total = empty(xp, (*lead, len(tiles)), SIDE, SIDE, e, like.s.dtype, like.s)
        for keys, seen in visits:
            total = merge(xp, total, visit(keys, seen))
        sums.append(PeakedSum(*(xp.reshape(x, (*lead, there.size, *x.shape[len(lead) + 2 :])) for x in total)))
    rows = indices(xp, place, like.s)
    s, z, peak = (xp.concat(list(x), axis=len(lead)) for x in zip(*sums, strict=True))
    return PeakedSum(xp.take(s, rows, axis=-2), xp.take(z, rows, axis=-1), xp.take(peak, rows, axis=-1))


def _batches(part: Part) -> Iterator[tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], NDArray[np.bool_]]]]]:
    """Yield tiles (b,) that visit as often, and of each visit the tokens (b, SIDE) and what is seen of them."""
    tile, low, high, _, words = visits_of(part)
    counts = np.bincount(tile, minlength=len(part.tiles))
    begins = np.cumsum(counts) - counts
    for count in np.unique(counts[counts > 0]):
        alike = np.flatnonzero(counts == count)
        for at in range(0, len(alike), TILES):
            tiles = alike[at : at + TILES]
            yield tiles, [_keys(part, low[x], high[x], words[x]) for x in (begins[tiles] + s for s in range(count))]


def _keys(
    part: Part, low: NDArray[np.int64], high: NDArray[np.int64], words: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    keys = np.minimum(low[:, None] + np.arange(SIDE), high[:, None] - 1)
    bits = words[:, None, :] >> np.arange(SIDE, dtype=np.uint64)[:, None]
    return keys if part.keys is None else part.keys[keys], (bits & np.uint64(1)).astype(bool)


def rows_of(xp: ModuleType, x: Array, rows: NDArray[np.int64]) -> Array:
    """Return rows (b, r) of x (..., n, c), (..., b, r, c)."""
    taken = xp.take(x, indices(xp, rows.reshape(-1), x), axis=-2)
    return xp.reshape(taken, (*x.shape[:-2], *rows.shape, x.shape[-1]))


def _visit(
    xp: ModuleType,
    q: Array,
    k: Array,
    v: Array,
    rows: Integers,
    keys: Integers,
    seen: NDArray[np.bool_],
    mask: Array | None,
    bias: Array | None,
    pairs: Array | None,
    known: bool,
) -> PeakedSum:
    """Return the sums of tiles of queries (..., b, r, d) over a visit of each; all values are `known` to be finite."""
    sees = constant(xp, seen, xp.bool, q)
    scores = xp.matmul(q, xp.matrix_transpose(rows_of(xp, k, keys)))
    if bias is not None:
        scores = scores + rows_of(xp, bias[..., None], keys)[..., None, :, 0]
    if pairs is not None:
        added = _pairs_of(xp, pairs, rows, keys)
        sees = sees & (added != -xp.inf)
        scores = scores + xp.where(added == xp.inf, xp.nan, added)
    if mask is not None:
        sees = sees & rows_of(xp, mask[..., None], keys)[..., None, :, 0]
    scores = xp.where(sees, scores, -xp.inf)
    peak = xp.max(scores, axis=-1, keepdims=True)
    weights, values = xp.exp(scores - finite(xp, peak)), rows_of(xp, v, keys)
    s = xp.matmul(weights, values) if known else blind_product(xp, weights, values, xp.astype(sees, q.dtype))
    return PeakedSum(s, xp.sum(weights, axis=-1), peak[..., 0])


def _pairs_of(xp: ModuleType, pairs: Array, rows: Integers, keys: Integers) -> Array:
    """Return what is added to the scores of rows (b, r) and keys (b, c), (..., b, r, c)."""
    at = rows[..., :, None] * pairs.shape[-1] + keys[..., None, :]
    flat = xp.reshape(pairs, (*pairs.shape[:-2], -1))
    taken = xp.take(flat, indices(xp, at.reshape(-1), pairs), axis=-1)
    return xp.reshape(taken, (*flat.shape[:-1], *at.shape))


def blind_product(xp: ModuleType, weights: Array, values: Array, sees: Array) -> Array:
    """Return weights values, where what a row does not see may be NaN or infinite."""
    rough = [xp.astype(x, weights.dtype) for x in (xp.isnan(values), values == xp.inf, values == -xp.inf)]
    nan, above, below = (xp.matmul(sees, x) > 0 for x in rough)
    product = xp.matmul(weights, xp.where(xp.isfinite(values), values, xp.zeros_like(values)))
    product = xp.where(above, xp.inf, xp.where(below, -xp.inf, product))
    return xp.where(nan | (above & below), xp.nan, product)
