"""Linear attention along a sequence that lies in chunks: states of chunks are added, and read."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from kernattn import attention
from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import instance_of
from kernattn.attention import LinearState, attend, initial_state, key_state, merge_states
from kernattn.attention._check import check_arrays
from kernattn.dask._arrays import (
    Lead,
    check_sized,
    count_chunks,
    drop_empty_chunks,
    lead_chunks,
    shared_chunks,
    whole_rows,
)
from kernattn.dask._graph import Key, Tasks, block_of, first_place, key_of, place_in
from kernattn.dask._recipe import Recipe, call_with_map, send_map
from kernattn.dask._trees import add_pairs, add_prefixes
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap


def linear_attention(q: Any, k: Any, v: Any, phi: FeatureMap | Recipe, *, backend: str | None = None) -> Any:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` of Dask arrays in chunks of tokens, lazily.

    Each chunk of keys is summarised where it lies, and the states, M (e + 1) numbers each, are added by a tree of fixed
    order: :math:`S = \sum_c S_c`. To rounding it is `kernattn.linear_attention`; outputs (..., n, e) are in the
    chunks of q that are not empty.

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

    Examples
    --------
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> x = da.random.default_rng(0).standard_normal((8, 1000, 4), chunks=(-1, 250, -1))
    >>> ka.dask.linear_attention(x, x, x, ka.features.elu1()).chunks
    ((8,), (250, 250, 250, 250), (4,))
    """
    sent = send_map(phi, backend)
    q, k, v, _ = _check(q, k, v, sent.here)
    lead, own = lead_chunks(q=q, k=k, v=v), count_chunks(lead_chunks(k=k, v=v))
    call = *sent.arguments, backend
    put = Tasks("states", [*sent.reads, k, v], call)
    whole = {i: add_pairs(partial(put, merge_states), _put_states(put, i, k, v, call)) for i in np.ndindex(own)}
    out = Tasks("attention", [*sent.reads, put.value(whole[first_place(own)]), q])
    for i in np.ndindex((*count_chunks(lead), q.numblocks[-2])):
        state = whole[place_in(own, i[:-1])]
        out.at((*i, 0), call_with_map, attend, *call, state, key_of(q, (*i, 0)))
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
    q, k, v, phi : object
        As `linear_attention` takes them, with as many keys as queries in the same chunks.
    state : LinearState, optional
        The state of what came before, of NumPy arrays or of Dask arrays.
    backend : {None, "reference", "cpu", "gpu"}
        As `linear_attention` takes it.

    Returns
    -------
    out : (..., n, e) dask.array.Array
        Outputs, in the chunks of q that are not empty.
    state : LinearState
        The state after the last token, of Dask arrays: `dask.compute` makes it one of NumPy arrays.

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
    sent = send_map(phi, backend)
    q, k, v, given = _check(q, k, v, sent.here, state)
    if q.shape[-2] != k.shape[-2]:
        raise ShapeError(f"causal attention takes as many queries as keys; got q {q.shape} and k {k.shape}")
    shared_chunks(-2, k=k, q=q)
    lead, own = lead_chunks(q=q, k=k, v=v), count_chunks(lead_chunks(k=k, v=v))
    history = [] if given is None else [*given[:3]]
    call = *sent.arguments, backend
    put = Tasks("prefixes", [*sent.reads, k, v, *history], call)
    before: dict[tuple[int, ...], list[Key]] = {}
    for i in np.ndindex(own):
        parts = _put_states(put, i, k, v, call)
        if given is not None:
            parts.insert(
                0,
                put(LinearState, *(block_of(a, i) for a in history), given.fingerprint),
            )
        before[i] = [*([None] if given is None else []), *add_prefixes(partial(put, merge_states), parts)]
    states = put.value(before[first_place(own)][-1])
    out = Tasks("causal", [*sent.reads, states, q, k, v])
    for i in np.ndindex((*count_chunks(lead), q.numblocks[-2])):
        start = before[place_in(own, i[:-1])][i[-1]]
        out.at((*i, 0), call_with_map, _causal, *call, start, *(key_of(a, (*i, 0)) for a in (q, k, v)))
    after = _state_of_arrays(states, {i: each[-1] for i, each in before.items()}, k, v, sent.here)
    return da.Array(out.graph(), out.name, (*lead, q.chunks[-2], v.chunks[-1]), meta=q._meta), after


def _check(
    q: Any, k: Any, v: Any, phi: FeatureMap, state: LinearState | None = None
) -> tuple[Any, Any, Any, LinearState | None]:
    """Check arrays and a state; return arrays of whole rows, and the state in their chunks."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        check_sized(name, array)
    before = state
    if state is not None:
        instance_of("state", state, LinearState)
        s, z, peak, made_by = state
        before = LinearState(da.asarray(s), da.asarray(z), da.asarray(peak), made_by)
    check_arrays("qkv", q, k, v, phi=phi, state=before)
    q, k, v = map(drop_empty_chunks, (q, k, v))
    shared_chunks(-2, k=k, v=v)
    q, k, v = (whole_rows(name, array) for name, array in (("q", q), ("k", k), ("v", v)))
    return q, k, v, None if before is None else _rechunk(before, lead_chunks(k=k, v=v))


def _rechunk(state: LinearState, lead: Lead) -> LinearState:
    """Return a state of Dask arrays in these chunks of its leading axes."""
    s, z, peak = (a.rechunk((*lead, *((size,) for size in a.shape[len(lead) :]))) for a in state[:3])
    return LinearState(s, z, peak, state.fingerprint)


def _put_states(put: Tasks, lead: tuple[int, ...], k: Any, v: Any, call: tuple[Any, ...]) -> list[Key]:
    """Add tasks for the states of all chunks of tokens at a place in the leading axes; return their keys."""
    places = [(*lead, chunk, 0) for chunk in range(k.numblocks[-2])]
    return [put(call_with_map, key_state, *call, key_of(k, i), key_of(v, i)) for i in places]


def _state_of_arrays(states: Any, keys: dict[tuple[int, ...], Key], k: Any, v: Any, phi: FeatureMap) -> LinearState:
    """Return the states of blocks, by their keys, as one state of Dask arrays."""
    like = initial_state(phi, (), v.shape[-1], np.zeros(k.shape[-1], k.dtype))

    def field(name: str) -> Any:
        one = getattr(like, name)
        put = Tasks(name, [states])
        for i, key in keys.items():
            put.at((*i, *first_place(one.shape)), getattr, key, name)
        chunks = (*lead_chunks(k=k, v=v), *((size,) for size in one.shape))
        return da.Array(put.graph(), put.name, chunks, meta=k._meta.astype(one.dtype))

    return LinearState(field("s"), field("z"), field("peak"), like.fingerprint)


def _causal(state: LinearState | None, q: Array, k: Array, v: Array, phi: FeatureMap, *, backend: str | None) -> Array:
    return attention.causal_linear_attention(q, k, v, phi, state=state, backend=backend)[0]
