"""Walks over whole arrays: who writes and who reads, and what comes back."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share, threads, worth_sharing
from kernattn._sums.cotangents import MapCotangent, onto_sums, sum_onto
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.layout import (
    NO_MASK,
    Rows,
    flat,
    has_bits,
    narrow,
    no_rows,
    nothing,
    room,
    rows,
    seconds_of,
    skipped,
    unwritten,
    written,
)
from kernattn.ops._numba.tiles.packing import PackedMap, pack_map
from kernattn.ops.features.crossover import FUSED_ABOVE, fast
from kernattn.ops.key_state_vjp.loops import BEFORE, END, FIRST, MASK, READER, RESULT, RUN_COLUMNS, WRITER, V, X, walk

CHUNK = 48  # as in `causal`
SHORT = 16  # where tokens see each other: a third of the pairs, and tiles that stay near the core


class Side(NamedTuple):
    """Tokens of a walk, flat, and the leading axes of each part."""

    phi: PackedMap
    parts: tuple[Rows, Rows, Rows, NDArray[Any], NDArray[Any], NDArray[Any]]  # x, v, outputs, h, z, peaks
    leads: tuple[tuple[int, ...], ...]  # of x, of v, of the four others, and of the mask
    mask: NDArray[np.bool_]
    tokens: tuple[int, int]  # n, e
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]  # of cotangents of x and of v

    def without_outputs(self) -> Side:
        """Return the side for a second walk: the first one has made h of the outputs."""
        x, v, _, h, z, peaks = self.parts
        return self._replace(parts=(x, v, no_rows(h.dtype), h, z, peaks))

    def in_floats(self) -> Side:
        """Return the side with cotangents in the dtype of sums: something is added to them."""
        return self._replace(dtypes=(self.parts[3].dtype,) * 2)

    def ahead(self, lag: int) -> Side:
        """Return the side without its first rows: each token has what stands so many rows behind it."""
        x, v, out, h, z, peaks = self.parts
        e = self.tokens[1]
        x, v, out = (skipped(part, lag * width) for part, width in ((x, self.phi.dim), (v, e), (out, e)))
        return self._replace(parts=(x, v, out, h[lag:], z[lag:], peaks[lag:]))


class Walk(NamedTuple):
    """The results of a walk, for every head of the outputs."""

    dx: NDArray[Any] | None  # (..., n, d)
    read: NDArray[Any] | None  # (..., n, e)
    sums: PeakedSum | None  # (..., M, e), or (parts, ..., M, e) where heads were cut: there are fewer than threads
    numbers: NDArray[Any]  # of the readers' map: omega, offset and row_weights, if they are learnt

    def cotangent(self, x: Array, spec: MapSpec, dtype: np.dtype[Any] | None = None) -> MapCotangent:
        """Return the cotangents of readers x, in their dtype or one that is asked for, and of their map's numbers."""
        assert self.dx is not None
        dx = narrow(sum_onto(np, self.dx, x.shape), x.dtype if dtype is None else dtype)
        if not self.numbers.size:
            return MapCotangent(dx)
        dim, features = x.shape[-1], spec.num_features_of(x.shape[-1])
        omega, offset, weights = np.split(self.numbers, (-features - dim, -dim))
        return MapCotangent(
            dx,
            None if spec.omega is None else omega.reshape(-1, dim),
            None if spec.offset is None else offset,
            None if spec.row_weights is None else weights,
        )


def loops_take(*specs: MapSpec) -> bool:
    """Do the loops take these maps? Quadratic forms and fast chains are left to array operations."""
    return all(spec.row_form is None and fast(spec.omega, FUSED_ABOVE) is None for spec in specs)


def keys(k: Array, v: Array, spec: MapSpec, key_mask: Array | None, dtype: np.dtype[Any]) -> Side:
    """Return keys with [v, 1]."""
    lead = np.broadcast_shapes(k.shape[:-2], v.shape[:-2])
    mask = NO_MASK if key_mask is None else flat(np.broadcast_to(key_mask, (*lead, k.shape[-2])), bool)
    none, phi = nothing(dtype), pack_map(spec, dtype, k.shape[-1])
    parts = rows(k, dtype), rows(v, dtype), no_rows(dtype), unwritten(dtype), none, none
    return Side(phi, parts, (k.shape[:-2], v.shape[:-2], (), lead), mask, v.shape[-2:], (k.dtype, v.dtype))


def whole(out: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return outputs, None where they were rounded to 16 bits: differences of g.v and g.o lose their digits."""
    return None if has_bits(out, dtype) else out


def queries(q: Array, spec: MapSpec, out: Array | None, normaliser: Normaliser, g: Array, dtype: np.dtype[Any]) -> Side:
    """Return queries over their normalisers with [g, -g.o]: without outputs o, a walk that they read finds g.o."""
    lead = g.shape[:-2]
    z, peaks, phi = flat(normaliser.z, dtype), flat(normaliser.peak, dtype), pack_map(spec, dtype, q.shape[-1])
    outputs, h = (no_rows(dtype), np.zeros_like(z)) if out is None else (rows(out, dtype), np.empty_like(z))
    parts = rows(q, dtype), rows(g, dtype), outputs, h, z, peaks
    return Side(phi, parts, (q.shape[:-2], lead, lead, ()), NO_MASK, g.shape[-2:], (q.dtype, g.dtype))


def walk_tokens(
    writers: Side | None,
    readers: Side | None,
    state: tuple[int, ...],
    out: tuple[int, ...],
    before: PeakedSum | None,
    fresh: NDArray[np.bool_] | None = None,
    *,
    reverse: bool = False,
    wants: bool = False,
    keeps: bool = False,
    once: bool = False,
    checks: bool = True,
    learn: bool = False,
    scaled: bool = False,
    lag: int = 0,
) -> Walk | None:
    """Return the results of a walk, None where a number is too large or too small for it.

    `state` and `out` are leading axes of states, and of the outputs; `fresh` says where sequences begin in the order of
    the walk. What came `before` is given to all heads that share a state, or to one of them, `once`. What is read is
    returned where it `wants` that, and the sums where it `keeps` them. A second walk over the same tokens need not look
    at their sizes again: it `checks` nothing. The numbers of the readers' map are returned where it is to `learn` them.
    The log scales of queries count where they are `scaled`. Queries that are `ahead` by a lag meet all keys but so many
    of the last; rows that nobody meets have cotangents of 0.
    """
    side = readers or writers
    assert side is not None
    w, r, phi = writers or side, readers or side, side.phi
    (n, e), dtype, count = side.tokens, phi.arrays[1].dtype, prod(out)
    writes, reads = writers is not None, readers is not None
    modes = writes, reads, wants, reads and (scaled or not r.parts[4].size), checks
    alone = not (writes and reads)  # tokens do not see each other
    chunk = chunk_of(alone, learn)
    seconds = count * n * _seconds(w.phi, r.phi, e, chunk, modes, dtype.itemsize)
    parts = max(1, threads() // count) if alone and _worth_cutting(seconds, n) else 1
    runs = _runs((w.leads, r.leads), state, out, _cuts(n, parts, lag, reverse), before is not None, once)
    dx = room((*out, n, phi.dim), _written_as(r, X, out, dtype)) if reads else None
    read = room((*out, n, e), _written_as(r, V, out, dtype)) if wants else None
    sums = _sums_of(phi, e, len(runs), dtype) if keeps else None
    none, unwanted = nothing(dtype), unwritten(dtype)
    old = (none,) * 3 if before is None else tuple(flat(x, dtype) for x in before)
    new = (unwanted,) * 3 if sums is None else tuple(x.reshape(-1) for x in sums)
    results = tuple(written(unwanted if x is None else x, dtype) for x in (dx, read))
    if lag:
        results = results if reverse else (skipped(results[0], lag * phi.dim), results[1])
        _clear((dx, read), slice(n - lag, None) if reverse else slice(lag))
    far = np.zeros(len(runs), np.int64)
    masks = w.mask, r.mask, NO_MASK if fresh is None else flat(fresh, bool)
    size = phi.frequencies * phi.dim + phi.features + phi.dim if learn else 0
    numbers: dict[int, NDArray[Any]] = {}

    def slab(low: int, high: int) -> None:
        numbers[low] = np.zeros(size, dtype)
        walk(
            w.phi.arrays, r.phi.arrays, e, w.parts, r.parts, masks, old, runs, n, (*results, numbers[low]), new, far,
            min(chunk, n), -1 if reverse else 1, modes, low, high,
        )  # fmt: skip

    share(slab, len(runs), seconds)
    if far.any():
        return None
    learnt = np.sum([numbers[low] for low in sorted(numbers)], axis=0) if learn else none
    return Walk(dx, read, None if sums is None else _parts_first(sums, out, parts), learnt)


def _worth_cutting(seconds: float, n: int) -> bool:
    """Is a head of n tokens to be cut, where there are fewer heads than threads?"""
    return worth_sharing(seconds / 5) and n > 24 * CHUNK


def _cuts(n: int, parts: int, lag: int, reverse: bool) -> tuple[int, ...]:
    """Return where stretches of n tokens begin, and where the last ends: in parts, or less the rows of a lag."""
    if lag:
        return (lag, n) if reverse else (0, n - lag)
    return tuple(part * n // parts for part in range(parts + 1))


def _sums_of(phi: PackedMap, e: int, runs: int, dtype: np.dtype[Any]) -> PeakedSum:
    """Return room for the sums of so many runs."""
    shapes = (phi.features, e), (phi.features,), (phi.features if phi.kind.per_feature else 1,)
    return PeakedSum(*(np.empty((runs, *shape), dtype) for shape in shapes))


def _clear(results: tuple[NDArray[Any] | None, ...], rows: slice) -> None:
    """Put zeros into some rows of the results that there are."""
    for x in results:
        if x is not None:
            x[..., rows, :] = 0


def _written_as(side: Side, part: int, out: tuple[int, ...], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of cotangents of x or of v: 16 bits where no others are added to them."""
    return side.dtypes[part] if side.parts[part][2] and side.leads[part] == out else dtype


def _parts_first(sums: PeakedSum, out: tuple[int, ...], parts: int) -> PeakedSum:
    """Return sums (runs, ...) as (parts, *out, ...), without the axis of parts where there is one."""
    if parts == 1:
        return PeakedSum(*(x.reshape(*out, *x.shape[1:]) for x in sums))
    return PeakedSum(*(np.moveaxis(x.reshape(*out, parts, *x.shape[1:]), len(out), 0) for x in sums))


@keep_while_small
def _runs(
    leads: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]],
    state: tuple[int, ...],
    out: tuple[int, ...],
    cuts: tuple[int, ...],
    begun: bool,
    once: bool,
) -> NDArray[np.int64]:
    """Return a run for each head and each stretch between cuts, as `walk` takes them.

    `leads` are those of writers and of readers; something came before where the walk has `begun`.
    """
    runs: NDArray[np.int64] = np.empty((prod(out), len(cuts) - 1, RUN_COLUMNS), np.int64)
    of_state = _heads_met(state, out)
    for at, each in zip((WRITER, READER), leads, strict=True):
        for i, lead in enumerate(each):
            runs[..., at + i] = _heads_met(lead, out)[:, None]
        runs[..., at + MASK] = of_state[:, None]
    runs[..., BEFORE] = of_state[:, None] if begun else -1
    if once and begun:
        others = np.ones(len(runs), bool)
        others[np.unique(of_state, return_index=True)[1]] = False
        runs[others, :, BEFORE] = -1
    runs[..., RESULT] = np.arange(len(runs))[:, None]
    runs[..., FIRST], runs[..., END] = cuts[:-1], cuts[1:]
    runs = runs.reshape(-1, RUN_COLUMNS)
    runs.setflags(write=False)
    return runs


def chunk_of(alone: bool, learn: bool) -> int:
    """Return how many tokens a walk takes at once: the cotangents of omega, if wanted, are added to once a chunk."""
    return CHUNK if alone or learn else SHORT


def onto_state(state: PeakedSum, written: Walk) -> PeakedSum:
    """Return the cotangents of a state's sums from what queries have written for each of their heads."""
    assert written.sums is not None
    s, z, peak = written.sums
    return onto_sums(np, PeakedSum(s, z, -peak), state)


def _seconds(writer: PackedMap, reader: PackedMap, e: int, chunk: int, modes: tuple[bool, ...], itemsize: int) -> float:
    """Return the seconds that a token takes one core."""
    writes, reads, wants, _, _ = modes
    flops = 2.0 * writes * writer.features * (e + writer.dim * writer.projects)
    flops += 2.0 * reads * reader.features * (e * (1 + wants) + 2 * reader.dim * reader.projects)
    flops += 2.0 * (writes and reads) * chunk * (reader.features * (1 + wants) + e)
    return seconds_of(flops, (writes + reads) * writer.features, itemsize)


def _heads_met(lead: tuple[int, ...], out: tuple[int, ...]) -> NDArray[np.int64]:
    """Return which head of leading axes `lead` each head of `out` meets."""
    return np.broadcast_to(np.arange(prod(lead)).reshape(lead), out).reshape(-1)
