"""Gated linear attention along a sequence that lies in chunks: stretches are merged in their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from kernattn import attention
from kernattn._arrays.namespaces import Array, namespace
from kernattn._runtime.checks import instance_of
from kernattn.attention import GatedState, GatedStretch, gated_state, merge_states
from kernattn.attention._check_gates import pair_of
from kernattn.attention._gated import gated_arguments
from kernattn.dask._arrays import check_sized, count_chunks, drop_empty_chunks, lead_chunks, shared_chunks, whole_rows
from kernattn.dask._graph import Key, Tasks, block_of, first_place, key_of, place_in
from kernattn.dask._trees import add_prefixes
from kernattn.errors import ShapeError
from kernattn.ops.causal.reference import count_segments
from kernattn.ops.dispatch import check_backend
from kernattn.ops.gated.reference import segment_starts

Rows = Sequence[Array | None]
"""Blocks of k, v, g, gk, beta, the pair that erases, masks, ids and those of the chunk before, (..., n, c) or None."""

FLAT = "g", "beta", "key_mask", "segment_ids"
"""What has no axis of channels."""


class Stretch(NamedTuple):
    """What a chunk remembers and does to a state before it, and where a segment begins in it (...) or None."""

    own: GatedStretch
    cut: Array | None


def gated_linear_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    g: Any = None,
    gk: Any = None,
    beta: Any = None,
    erase: tuple[Any, Any] | None = None,
    scale: float | None = None,
    l2_normalise: bool = False,
    state: GatedState | None = None,
    key_mask: Any = None,
    segment_ids: Any = None,
    backend: str | None = None,
) -> tuple[Any, GatedState]:
    r"""Return :math:`o_t = s\, S_t^T q_t` of Dask arrays in chunks of tokens, and the last state.

    A chunk is an affine map of the state before it, :math:`S \to \Phi_c S + S_c`. A prefix scan of fixed order merges
    these maps, and each chunk begins from its own prefix. Without `beta` and `erase` a map is a state and a decay, and
    the scan costs next to nothing. With them :math:`\Phi_c` is a matrix (d, d): tokens are gone through three times,
    and merging costs more than they do where chunks are shorter than d. Where a segment begins nothing comes through,
    neither in a chunk nor between two. To rounding it is `kernattn.gated_linear_attention`.

    Parameters
    ----------
    q, k, v : dask.array.Array
        Queries and keys (..., n, d) and values (..., n, e), in the same chunks of tokens. Leading axes broadcast, and
        have the same chunks.
    g : (..., n) or (..., 1) dask.array.Array, optional
        Logarithms of decays.
    gk : (..., n, d) dask.array.Array, optional
        Logarithms of decays of each channel.
    beta : (..., n) or (..., 1) dask.array.Array, optional
        How much of what k reads is replaced by v.
    erase : pair of (..., n, d) dask.array.Array, optional
        What is read before the decay, and where it is added.
    scale, l2_normalise : object
        As `kernattn.gated_linear_attention` takes them.
    state : GatedState, optional
        The state of what came before, of a NumPy array or of a Dask array.
    key_mask : (..., n) bool dask.array.Array, optional
        True where there is a token.
    segment_ids : (..., n) integer dask.array.Array, optional
        Packed sequences: runs of equal ids do not see each other, and may lie across chunks.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs on workers; None chooses the fastest for their arrays.

    Returns
    -------
    out : (..., n, e) dask.array.Array
        Outputs, in the chunks of q that are not empty.
    state : GatedState
        The state after the last token, of a Dask array: `dask.compute` makes it one of a NumPy array.

    Examples
    --------
    >>> import dask
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> x = da.random.default_rng(0).standard_normal((1000, 4), chunks=(250, -1))
    >>> g = -da.ones(1000, chunks=250)
    >>> out, state = dask.compute(*ka.dask.gated_linear_attention(x, x, x, g=g))
    >>> out.shape, state.s.shape
    ((1000, 4), (4, 4))
    """
    check_backend(backend)
    q, rows, given = _check(q, k, v, g, gk, beta, erase, key_mask, segment_ids, scale, l2_normalise, state)
    here = {name: x for name, x in rows.items() if x is not None}
    lead, own = lead_chunks(q=q, **here), lead_chunks(**here)
    counts, chunks = count_chunks(own), range(rows["k"].numblocks[-2])
    put = Tasks("gated-prefixes", [*here.values(), *given], l2_normalise, backend)

    def blocks(place: tuple[int, ...], chunk: int) -> list[Key | None]:
        ids, at = rows["segment_ids"], (*place, chunk, 0)
        earlier = None if ids is None or chunk == 0 else key_of(ids, (*place, chunk - 1, 0))
        return [*(None if x is None else key_of(x, at) for x in rows.values()), earlier]

    before: dict[tuple[int, ...], list[Key | None]] = {}
    for i in np.ndindex(counts):
        start = [put(GatedState, block_of(s, i)) for s in given] or [put(_begin, blocks(i, 0), l2_normalise, backend)]
        rest = chunks if given else chunks[1:]
        parts = [*start, *(put(_summarise, blocks(i, chunk), l2_normalise, backend) for chunk in rest)]
        before[i] = [*([] if given else [None]), *add_prefixes(partial(put, _join), parts)]
    last = put.value(before[first_place(counts)][-1])
    out = Tasks("gated", [last, q, *here.values()], scale, l2_normalise, backend)
    for i in np.ndindex((*count_chunks(lead), len(chunks))):
        place = place_in(counts, i[:-1])
        out.at(
            (*i, 0), _read, before[place][i[-1]], key_of(q, (*i, 0)), blocks(place, i[-1]), scale, l2_normalise, backend
        )
    states = Tasks("gated-state", [last])
    for i, each in before.items():
        states.at((*i, 0, 0), getattr, each[-1], "s")
    d, e = rows["k"].shape[-1], rows["v"].shape[-1]
    wide = np.empty((), np.float64 if q.dtype == np.float64 else np.float32)
    after = da.Array(states.graph(), states.name, (*own, (d,), (e,)), meta=wide)
    return da.Array(out.graph(), out.name, (*lead, q.chunks[-2], (e,)), meta=q._meta), GatedState(after)


def _check(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    gk: Any,
    beta: Any,
    erase: Any,
    key_mask: Any,
    segment_ids: Any,
    scale: float | None,
    l2_normalise: bool,
    state: GatedState | None,
) -> tuple[Any, dict[str, Any], list[Any]]:
    """Check arguments; return queries, what stands beside keys as (..., n, c), and sums of a state, in their chunks."""
    read, write = pair_of(erase)
    arrays = {"q": q, "k": k, "v": v, "g": g, "gk": gk, "beta": beta, "erase[0]": read, "erase[1]": write}
    arrays |= {"key_mask": key_mask, "segment_ids": segment_ids}
    for name, x in arrays.items():
        if x is not None or name in ("q", "k", "v"):
            check_sized(name, x)
            if x.ndim < (1 if name in FLAT else 2):
                raise ShapeError(f"{name} must have an axis of tokens; got {x.shape}")
    rows = {name: x[..., None] if x is not None and name in FLAT else x for name, x in arrays.items()}
    here = {name: drop_empty_chunks(x) for name, x in rows.items() if x is not None}
    shared_chunks(-2, **here)
    for name, x in here.items():
        if x.shape[-2] not in ({1, q.shape[-2]} if name in ("g", "beta") else {q.shape[-2]}):
            raise ShapeError(f"{name} must have as many tokens as q, {q.shape[-2]}; got {x.shape[-2]}")
    here = {name: whole_rows(name, x) for name, x in here.items()}
    before = None
    if state is not None:
        instance_of("state", state, GatedState)
        before = da.asarray(state.s)
    first = {name: _stand_in(x[..., 0] if name in FLAT else x, name in FLAT) for name, x in here.items()}
    pair = None if read is None else (first["erase[0]"], first["erase[1]"])
    held = None if before is None else GatedState(np.broadcast_to(np.zeros((), before.dtype), before.shape))
    gated_arguments(
        first["q"], first["k"], first["v"], first.get("g"), first.get("gk"), first.get("beta"), pair, scale,
        l2_normalise, held, first.get("key_mask"), first.get("segment_ids"),
    )  # fmt: skip
    beside = {name: here.get(name) for name in rows if name != "q"}
    if before is None:
        return here["q"], beside, []
    lead = lead_chunks(**{name: x for name, x in here.items() if name != "q"})
    return here["q"], beside, [before.rechunk((*lead, *((size,) for size in before.shape[-2:])))]


def _stand_in(x: Any, tokens_last: bool) -> Array:
    """Return zeros of the shape of an array in its first chunk of tokens, which take no memory."""
    axis = x.ndim - (1 if tokens_last else 2)
    shape = (*x.shape[:axis], x.chunks[axis][0], *x.shape[axis + 1 :])
    return np.broadcast_to(np.zeros((), x.dtype), shape)


def _summarise(rows: Rows, l2_normalise: bool, backend: str | None) -> Stretch:
    k, v, options = _last_segment(rows)
    return Stretch(gated_state(k, v, **options, l2_normalise=l2_normalise, backend=backend), _cut(rows, whole=True))


def _begin(rows: Rows, l2_normalise: bool, backend: str | None) -> GatedState:
    """Return the state after the first chunk, which has none before it to change."""
    k, v, options = _last_segment(rows)
    return attention.gated_linear_attention(k, k, v, **options, l2_normalise=l2_normalise, backend=backend)[1]


def _join(first: GatedState | Stretch, then: Stretch) -> GatedState | Stretch:
    """Return the state of both, one after the other; nothing of the first where a segment begins after it."""
    own, cut = first if isinstance(first, Stretch) else (first, None)
    both = merge_states(own if then.cut is None else type(own)(*(_without(x, then.cut) for x in own)), then.own)
    if isinstance(both, GatedState):
        return both
    return Stretch(both, then.cut if cut is None or then.cut is None else cut | then.cut)


def _read(
    state: GatedState | None, q: Array, rows: Rows, scale: float | None, l2_normalise: bool, backend: str | None
) -> Array:
    k, v, options, ids = _options(rows)
    if state is not None and (cut := _cut(rows, whole=False)) is not None:
        state = GatedState(_without(state.s, cut))
    given = {**options, "segment_ids": ids, "scale": scale, "l2_normalise": l2_normalise, "state": state}
    return attention.gated_linear_attention(q, k, v, **given, backend=backend)[0]


def _options(rows: Rows) -> tuple[Any, Any, dict[str, Any], Any]:
    """Return keys, values, the options of all calls, and ids of segments."""
    k, v, g, gk, beta, read, write, mask, ids, _ = rows
    flat = {"g": g, "beta": beta, "key_mask": mask, "ids": ids}
    flat = {name: None if x is None else x[..., 0] for name, x in flat.items()}
    ids = flat.pop("ids")
    return k, v, {**flat, "gk": gk, "erase": None if read is None else (read, write)}, ids


def _last_segment(rows: Rows) -> tuple[Any, Any, dict[str, Any]]:
    """Return keys, values and options that show a chunk's last segment alone: what its state remembers."""
    k, v, options, ids = _options(rows)
    if ids is not None:
        run = count_segments(namespace(ids=ids), ids)
        last, mask = run == run[..., -1:], options["key_mask"]
        options["key_mask"] = last if mask is None else mask & last
    return k, v, options


def _cut(rows: Rows, *, whole: bool) -> Array | None:
    """Return where a segment begins in a chunk (...), or with its first token alone; None where none can."""
    ids, earlier = rows[-2:]
    if ids is None:
        return None
    ids = ids[..., 0]
    xp = namespace(ids=ids)
    begins = xp.zeros_like(ids[..., 0], dtype=xp.bool) if earlier is None else ids[..., 0] != earlier[..., -1, 0]
    return begins | xp.any(segment_starts(xp, ids), axis=-1) if whole else begins


def _without(x: Array, cut: Array) -> Array:
    """Return x (..., d, c) with 0 where it is cut off (...), whatever stands there."""
    return namespace(x=x).where(cut[..., None, None], 0.0, x)
