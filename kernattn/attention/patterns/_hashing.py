"""Locality-sensitive hashing: tokens of near directions share a chunk of a sorted order, in one of several rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, check_floating, namespace, on_host
from kernattn._plans.intervals import part_of
from kernattn._plans.parts import SIDE, Part, freeze, pack_words, visits_of
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import positive_integer
from kernattn.attention._check import check_arrays
from kernattn.attention.patterns._base import Pattern, check_one_axis_of_heads
from kernattn.attention.patterns._intervals import Integers, Sees
from kernattn.errors import ParameterError, ShapeError

Words = NDArray[np.uint64]

PROJECTED = 1 << 17  # projections that are made at once: they stay in a cache
TABLE = 1 << 18  # words that are looked up, a chunk of a tile each, at once
SLAB = 256  # visits of which every pair is looked at, at once


@dataclass(frozen=True, eq=False)
class LSH(Pattern):
    """The chunk of j is that of i, or the one before it, in some round."""

    order: Integers  # (heads, rounds, l): tokens by bucket and position, those that a mask hides behind all others
    counts: tuple[int, ...]  # of the others in each head
    chunk: int
    own: bool = True  # whether a token sees itself
    _long: ClassVar[bool] = True
    _kept: dict[tuple[int, int, bool], Plan] = field(default_factory=dict, repr=False)

    def _make_plan(self, n: int, length: int, causal: bool) -> Plan:
        """Return the plan: it is kept here, and goes with the tokens that it is of."""
        if (n, length, causal) not in self._kept:
            self._kept[n, length, causal] = Plan("parts", n, length, self._parts(n, length, causal))
        return self._kept[n, length, causal]

    def _parts(self, n: int, length: int, causal: bool) -> tuple[tuple[Part, ...], ...]:
        self._check(length)
        return tuple(self._plan_head(head, n, length, causal) for head in range(len(self.order)))

    def _check(self, length: int) -> None:
        if length != self.order.shape[-1]:
            raise ParameterError(f"lsh is for l = {self.order.shape[-1]} tokens, as many as x has; got l = {length}")

    def _plan_head(self, head: int, n: int, length: int, causal: bool) -> tuple[Part, ...]:
        count, chunks, parts = self.counts[head], self._chunks(head), []
        for number, order in enumerate(self.order[head, :, :count]):
            at = np.flatnonzero(order >= length - n)
            if len(at) == 0:
                continue
            frame = _whole_frame(count, self.chunk) if n == length else _make_frame(at, count, self.chunk)
            queries = order[at]
            words = frame.all if self.own or number > 0 else frame.others
            if causal:
                words = words & _mark_earlier(frame, order, queries)
            for before in chunks[:number]:
                words = words & ~_mark_met(frame, before[queries], before[order])
            parts.append(freeze(_narrow(frame, words, queries - (length - n), order)))
        return tuple(part for part in parts if len(part.visits))

    def _chunks(self, head: int) -> Integers:
        """Return the chunk of each token in each round, (rounds, l), -2 where it is in none."""
        count, order = self.counts[head], self.order[head]
        chunks = np.full(order.shape, -2)
        np.put_along_axis(chunks, order[:, :count], np.arange(count)[None] // self.chunk, axis=1)
        return chunks

    def _sees(self, n: int, length: int) -> tuple[Sees, ...]:
        self._check(length)

        def of_head(chunks: Integers) -> Sees:
            def mask_of(rows: Integers, tokens: Integers) -> NDArray[np.bool_]:
                sees = np.zeros(np.broadcast_shapes(rows.shape, tokens.shape), bool)
                for each in chunks:
                    apart = each[rows + length - n] - each[tokens]
                    sees |= (apart >= 0) & (apart <= 1) & (each[tokens] >= 0)
                return sees if self.own else sees & (rows + length - n != tokens)

            return mask_of

        return tuple(of_head(self._chunks(head)) for head in range(len(self.order)))


class _Frame(NamedTuple):
    """Chunks of a sorted order that see themselves and the one before, before tokens are put into it."""

    part: Part
    tile: Integers  # (V,), of each visit
    low: Integers
    high: Integers
    all: Words  # (V, SIDE), all that there is
    others: Words  # without what stands at the place of the query
    keys: Integers  # (V, SIDE), the place of each key
    rows: Integers  # (T, SIDE), the number of each query
    tile_of: Integers  # (n,), of each query
    bits: Words  # (n,), of each query in the words of its tile


@lru_cache(maxsize=8)
def _whole_frame(count: int, chunk: int) -> _Frame:
    """Return the frame of so many tokens, all of them queries."""
    return _make_frame(np.arange(count), count, chunk)


def _make_frame(at: Integers, count: int, chunk: int) -> _Frame:
    """Return the frame of so many tokens, queries among them `at` some places."""
    chunks, runs = np.unique(at // chunk, return_index=True)
    low, high = np.maximum(chunks - 1, 0) * chunk, np.minimum((chunks + 1) * chunk, count)
    part = part_of(low[None], high[None], np.append(runs, len(at)), count, cuts=runs)
    tile, low, high, _, full = visits_of(part)
    keys = np.minimum(low[:, None] + np.arange(SIDE), high[:, None] - 1)
    first, rows = part.tiles[:, 0], part.tiles[:, 1]
    tile_of = np.repeat(np.arange(len(first)), rows)
    bits = np.uint64(1) << (np.arange(len(at)) - first[tile_of]).astype(np.uint64)
    query, bit = np.full(count, -1), np.zeros(count, np.uint64)
    query[at], bit[at] = tile_of, bits
    own = np.where(query[keys] == tile[:, None], bit[keys], np.uint64(0))
    each = np.minimum(first[:, None] + np.arange(SIDE), (first + rows)[:, None] - 1)
    return _Frame(part, tile, low, high, full, full & ~own, keys, each, tile_of, bits)


def _mark_met(frame: _Frame, queries: Integers, keys: Integers) -> Words:
    """Return the words of the pairs whose chunks, those of queries (n,) and keys (m,), met in another round.

    In a table with a word for each tile and chunk, a query sets its bit at its chunk and the one before; a key's word
    stands at its own. Bits of a word are apart, so that they are added.
    """
    words, width = np.empty_like(frame.all), int(np.max(keys)) + 2
    step, last = max(1, TABLE // width), len(frame.part.tiles)
    for begin in range(0, last, step):
        rows, visits = (
            slice(*np.searchsorted(numbers, [begin, begin + step])) for numbers in (frame.tile_of, frame.tile)
        )
        table = np.zeros(min(step, last - begin) * width, np.uint64)
        at = (frame.tile_of[rows] - begin) * width + queries[rows]
        np.add.at(table, at, frame.bits[rows])
        np.add.at(table, at + 1, frame.bits[rows])
        base = (frame.tile[visits] - begin) * width + 1
        words[visits] = table[keys[frame.keys[visits]] + base[:, None]]
    return words


def _mark_earlier(frame: _Frame, keys: Integers, queries: Integers) -> Words:
    """Return the words of the pairs whose key does not stand after the query, for the tokens of both."""
    of_keys, of_queries = keys.astype(np.int32), queries.astype(np.int32)[frame.rows]  # half the memory
    words = np.empty_like(frame.all)
    for at in range(0, len(words), SLAB):
        some = slice(at, at + SLAB)
        words[some] = pack_words(of_keys[frame.keys[some]][:, :, None] <= of_queries[frame.tile[some]][:, None, :])
    return words


def _narrow(frame: _Frame, words: Words, queries: Integers, keys: Integers) -> Part:
    """Return the part of what the words of a frame leave of it."""
    tiles, visits, _ = frame.part[2:]
    if words is frame.all:
        return Part(queries, keys, *frame.part[2:])
    there, partial = np.any(words != 0, axis=1), np.any(words != frame.all, axis=1)
    visits = np.stack([frame.low, frame.high, np.where(partial, np.cumsum(there & partial) - 1, -1)], axis=-1)[there]
    ends = np.searchsorted(frame.tile[there], np.arange(len(tiles)), side="right")
    tiles = np.stack([tiles[:, 0], tiles[:, 1], np.append(0, ends[:-1]), ends], axis=-1)
    return Part(queries, keys, tiles, visits, words[there & partial])


def lsh(x: Array, *, rotations: Array, chunk: int, key_mask: Array | None = None) -> LSH:
    r"""Return the pattern of hashed tokens: in some round, the chunk of j is that of i or the one before it.

    Reformer, Kitaev, Kaiser and Levskaya (2020). In each round token i falls into the bucket
    :math:`h(x_i) = \arg\max\,[R^T x_i; -R^T x_i]`. Tokens are sorted by bucket, those of one bucket by position, and
    the sorted sequence is cut into chunks. A chunk sees itself and the previous one; the first sees itself alone. A
    pair that meets in several rounds is one pair: attention is exact over the union of the rounds.

    Parameters
    ----------
    x : (l, d) or (heads, l, d) array
        The tokens, queries and keys alike, of any library. Attention wants the heads as its last leading axis; each
        has an order of its own. Further leading axes must be 1.
    rotations : (rounds, d, buckets // 2) array
        A matrix R for each round, drawn from the normal law as a rule; of the library of x, or of NumPy.
    chunk : int
        How many tokens a chunk has; the last one may be shorter.
    key_mask : (..., l) bool array, optional
        True where there is a token. One that is hidden is in no bucket: it sees nothing, and nobody sees it.

    Returns
    -------
    Pattern
        For l tokens.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> ka.patterns.lsh(x, rotations=np.eye(2)[None], chunk=1).plan(4).mask().astype(int)
    array([[1, 0, 0, 0],
           [0, 1, 1, 0],
           [1, 0, 1, 0],
           [0, 1, 0, 1]])
    """
    check_arrays("x", x, key_mask=key_mask)
    check_one_axis_of_heads("x", tuple(x.shape[:-2]))
    chunk = positive_integer("chunk", chunk)
    tokens, matrices = on_host("x", x), _check_rotations(rotations, x)
    (*lead, length, _), rounds = tokens.shape, len(matrices)
    buckets = _hash_tokens(tokens.reshape(-1, tokens.shape[-1]), matrices.astype(tokens.dtype, copy=False))
    buckets = np.swapaxes(buckets.reshape(rounds, -1, length), 0, 1)  # (heads, rounds, l)
    heads = len(buckets)
    counts = np.full(heads, length)
    if key_mask is not None:
        there = np.broadcast_to(on_host("key_mask", key_mask), (*lead, length)).reshape(heads, 1, length)
        buckets, counts = np.where(there, buckets, 2 * matrices.shape[-1]), np.sum(there[:, 0], axis=-1)
    kind = np.min_scalar_type(2 * matrices.shape[-1])
    order = np.argsort(buckets.astype(kind), axis=-1, kind="stable")
    order.setflags(write=False)
    return LSH(order, tuple(counts.tolist()), chunk)


def _check_rotations(rotations: Any, x: Array) -> NDArray[Any]:
    """Return the rotations on the host; they must fit x."""
    if not isinstance(rotations, np.ndarray):
        namespace(rotations=rotations, x=x)
    check_floating("rotations", rotations)
    shape = tuple(rotations.shape)
    if len(shape) != 3 or 0 in shape or shape[1] != x.shape[-1]:
        raise ShapeError(
            f"rotations must be (rounds, d, buckets // 2) with d = {x.shape[-1]}, as x has; got shape {shape}"
        )
    matrices = on_host("rotations", rotations)
    if not np.all(np.isfinite(matrices)):
        raise ParameterError("rotations must hold finite numbers; got others")
    return matrices


def _hash_tokens(x: NDArray[Any], rotations: NDArray[Any]) -> Integers:
    """Return argmax [x R; -x R] of tokens (n, d) in each round, (rounds, n), the first of equals.

    Which number is the largest one, the largest rank tells: NumPy's argmax takes short rows one by one.
    """
    rounds, dim, half = rotations.shape
    matrix = np.ascontiguousarray(np.swapaxes(rotations, 1, 2)).reshape(rounds * half, dim)
    rank = np.arange(half, 0, -1).astype(np.min_scalar_type(half))[:, None]
    step, buckets = max(1, PROJECTED // (rounds * half)), np.empty((rounds, len(x)), np.int64)
    for at in range(0, len(x), step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            u = (matrix @ x[at : at + step].T).reshape(rounds, half, -1)
            high, low = np.max(u, axis=1), -np.min(u, axis=1)
            best = np.where(high >= low, high, -low)[:, None]
            first = half - np.max((u == best) * rank, axis=1).astype(np.int64)
            buckets[:, at : at + step] = first + np.where(high < low, half, 0)
    return buckets
