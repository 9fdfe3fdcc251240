"""Linear attention along a sequence that lies in chunks: states of chunks are added, and read."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import dask.array as da
import numpy as np

from kernattn import attention
from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import instance_of
from kernattn.attention import LinearState, attend, initial_state, key_state, merge_states
from kernattn.attention._check import check_arrays
from kernattn.dask._arrays import lazy_array, same_chunks, whole_rows, without_empty_chunks
from kernattn.dask._graph import Key, Tasks, key_of, place_in
from kernattn.dask._recipe import Recipe, Sent, drawn, sent
from kernattn.dask._trees import prefixes, total
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap

Lead = tuple[tuple[int, ...], ...]
"""Chunks of leading axes."""


def linear_attention(q: Any, k: Any, v: Any, phi: FeatureMap | Recipe, *, backend: str | None = None) -> Any:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` of Dask arrays in chunks of tokens, lazily.

    Each chunk of keys is summarised where it lies, and the states, M (e + 1) numbers each, are added by a tree of fixed
    order: :math:`S = \sum_c S_c`. To rounding it is `kernattn.linear_attention`.

    Parameters
    ----------
    q : (..., n, d) dask.array.Array
        Queries, in any chunks along n.
    k : (..., l, d) dask.array.Array
        Keys. Leading axes broadcast against those of q, and have the same chunks.
    v : (..., l, e) dask.array.Array
        Values, in the chunks of k.
    phi : FeatureMap or Recipe
        The map.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs on workers; None chooses the fastest for their arrays.

    Returns
    -------
    (..., n, e) dask.array.Array
        Outputs, in the chunks of q that are not empty.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError
        At once, if an argument or its chunks do not fit.
    StateMismatchError
        When it is computed, if a worker draws another map from the recipe.

    Examples
    --------
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> x = da.random.default_rng(0).standard_normal((8, 1000, 4), chunks=(-1, 250, -1))
    >>> ka.dask.linear_attention(x, x, x, ka.features.elu1()).chunks
    ((8,), (250, 250, 250, 250), (4,))
    """
    way = sent(phi)
    q, k, v, _ = _checked(q, k, v, way.here)
    lead, own = _lead(q=q, k=k, v=v), _counts(_lead(k=k, v=v))
    put = Tasks("states", [*way.reads, k, v], way.arguments, backend)
    whole = {}
    for i in np.ndindex(own):
        whole[i] = total(_adding(put), _states(put, i, k, v, way, backend))
    out = Tasks("attention", [*way.reads, put.value(whole[_first(own)]), q])
    for i in np.ndindex((*_counts(lead), q.numblocks[-2])):
        state = whole[place_in(own, i[:-1])]
        out.at((*i, 0), _attended, state, key_of(q, (*i, 0)), *way.arguments, backend)
    return da.Array(out.graph(), out.name, (*lead, q.chunks[-2], v.chunks[-1]), meta=q._meta)


def causal_linear_attention(
    q: Any,
    k: Any,
    v: Any,
    phi: FeatureMap | Recipe,
    *,
    state: LinearState | None = None,
    backend: str | None = None,
) -> tuple[Any, LinearState]:
    r"""Return :math:`o_i = \phi(q_i)^T S_i / \phi(q_i)^T z_i` of Dask arrays in chunks of tokens, and the last state.

    A chunk begins from the state of all chunks before it, :math:`S_{<c} = \sum_{b < c} S_b`, which a prefix scan of
    fixed order makes of the chunks' own states. To rounding it is `kernattn.causal_linear_attention`.

    Parameters
    ----------
    q : (..., n, d) dask.array.Array
        Queries.
    k : (..., n, d) dask.array.Array
        Keys, in the chunks of q along n. Leading axes broadcast against those of q, and have the same chunks.
    v : (..., n, e) dask.array.Array
        Values, in the chunks of k.
    phi : FeatureMap or Recipe
        The map.
    state : LinearState, optional
        The state of what came before, of NumPy arrays or of Dask arrays.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs on workers; None chooses the fastest for their arrays.

    Returns
    -------
    out : (..., n, e) dask.array.Array
        Outputs, in the chunks of q that are not empty.
    state : LinearState
        The state after the last token, of Dask arrays: `dask.compute` makes it one of NumPy arrays.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, StateMismatchError
        At once, if an argument or its chunks do not fit.
    StateMismatchError
        When it is computed, if a worker draws another map from the recipe.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> x = da.random.default_rng(0).standard_normal((1000, 4), chunks=(250, -1))
    >>> out, state = dask.compute(*ka.dask.causal_linear_attention(x, x, x, ka.features.elu1()))
    >>> out.shape, state.s.shape
    ((1000, 4), (4, 4))
    """
    way = sent(phi)
    q, k, v, given = _checked(q, k, v, way.here, state)
    if q.shape[-2] != k.shape[-2]:
        raise ShapeError(f"causal attention takes as many queries as keys; got q {q.shape} and k {k.shape}")
    same_chunks(-2, k=k, q=q)
    lead, own = _lead(q=q, k=k, v=v), _counts(_lead(k=k, v=v))
    history = [] if given is None else [*given[:3]]
    put = Tasks("prefixes", [*way.reads, k, v, *history], way.arguments, backend)
    before: dict[tuple[int, ...], list[Key]] = {}
    for i in np.ndindex(own):
        parts = _states(put, i, k, v, way, backend)
        if given is None:
            before[i] = [None, *prefixes(_adding(put), parts)]
        else:
            first = put(LinearState, *(_block(a, i) for a in history), given.fingerprint)
            before[i] = prefixes(_adding(put), [first, *parts])
    states = put.value(before[_first(own)][-1])
    out = Tasks("causal", [*way.reads, states, q, k, v])
    for i in np.ndindex((*_counts(lead), q.numblocks[-2])):
        start = before[place_in(own, i[:-1])][i[-1]]
        out.at((*i, 0), _run, start, *(key_of(a, (*i, 0)) for a in (q, k, v)), *way.arguments, backend)
    after = _arrays(states, {i: each[-1] for i, each in before.items()}, k, v, way.here)
    return da.Array(out.graph(), out.name, (*lead, q.chunks[-2], v.chunks[-1]), meta=q._meta), after


def _checked(
    q: Any, k: Any, v: Any, phi: FeatureMap, state: LinearState | None = None
) -> tuple[Any, Any, Any, LinearState | None]:
    """Return arrays whose rows are whole, and a state of arrays in their chunks."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        lazy_array(name, array)
        if any(map(isnan, array.shape)):
            raise ShapeError(
                f"{name} must have chunks of known sizes: call {name}.compute_chunk_sizes(); got {array.shape}"
            )
    before = state
    if state is not None:
        instance_of("state", state, LinearState)
        s, z, peak, made_by = state
        before = LinearState(da.asarray(s), da.asarray(z), da.asarray(peak), made_by)
    check_arrays("qkv", q, k, v, phi=phi, state=before)
    q, k, v = map(without_empty_chunks, (q, k, v))
    same_chunks(-2, k=k, v=v)
    q, k, v = (whole_rows(name, array) for name, array in (("q", q), ("k", k), ("v", v)))
    return q, k, v, None if before is None else _in_chunks(before, _lead(k=k, v=v))


def _in_chunks(state: LinearState, lead: Lead) -> LinearState:
    """Return a state in these chunks of its leading axes."""
    s, z, peak = (a.rechunk((*lead, *((size,) for size in a.shape[len(lead) :]))) for a in state[:3])
    return LinearState(s, z, peak, state.fingerprint)


def _lead(**arrays: Any) -> Lead:
    """Return the chunks of the leading axes of all arrays together."""
    axes = range(-max(a.ndim for a in arrays.values()), -2)
    return tuple(same_chunks(axis, **arrays) for axis in axes)


def _counts(lead: Lead) -> tuple[int, ...]:
    return tuple(map(len, lead))


def _first(counts: tuple[int, ...]) -> tuple[int, ...]:
    return (0,) * len(counts)


def _block(array: Any, lead: tuple[int, ...]) -> Key:
    """Return the key of a block of which only the leading axes are in chunks."""
    return key_of(array, (*lead, *_first(array.numblocks[len(lead) :])))


def _adding(put: Tasks) -> Callable[[Key, Key], Key]:
    return lambda a, b: put(merge_states, a, b)


def _states(put: Tasks, lead: tuple[int, ...], k: Any, v: Any, way: Sent, backend: str | None) -> list[Key]:
    """Return the states of the chunks of tokens at a place in the leading axes."""
    places = [(*lead, chunk, 0) for chunk in range(k.numblocks[-2])]
    return [put(_key_state, key_of(k, i), key_of(v, i), *way.arguments, backend) for i in places]


def _arrays(states: Any, found: dict[tuple[int, ...], Key], k: Any, v: Any, phi: FeatureMap) -> LinearState:
    """Return states of blocks as a state of arrays."""
    like = initial_state(phi, (), v.shape[-1], np.zeros(k.shape[-1], k.dtype))

    def field(name: str) -> Any:
        one = getattr(like, name)
        put = Tasks(name, [states])
        for i, key in found.items():
            put.at((*i, *_first(one.shape)), getattr, key, name)
        chunks = (*_lead(k=k, v=v), *((size,) for size in one.shape))
        return da.Array(put.graph(), put.name, chunks, meta=k._meta.astype(one.dtype))

    return LinearState(field("s"), field("z"), field("peak"), like.fingerprint)


def _key_state(k: Array, v: Array, phi: FeatureMap | Recipe, fingerprint: int, backend: str | None) -> LinearState:
    return key_state(k, v, drawn(phi, fingerprint), backend=backend)


def _attended(state: LinearState, q: Array, phi: FeatureMap | Recipe, fingerprint: int, backend: str | None) -> Array:
    return attend(state, q, drawn(phi, fingerprint), backend=backend)


def _run(
    state: LinearState | None,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap | Recipe,
    fingerprint: int,
    backend: str | None,
) -> Array:
    return attention.causal_linear_attention(q, k, v, drawn(phi, fingerprint), state=state, backend=backend)[0]
