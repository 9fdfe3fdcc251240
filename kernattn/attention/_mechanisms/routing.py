"""Attention among the tokens that clusters bring together."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    check_floating,
    constant,
    dtype_name,
    indices,
    namespace,
    on_host,
    zero_masked,
    zeros,
)
from kernattn._runtime.checks import boolean, finite_number, one_of, positive_integer
from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention._check import check_arrays
from kernattn.attention._clusters import (
    Floats,
    Integers,
    Members,
    average_clusters,
    group_by_head,
    normalise_rows,
    plan_nearest,
    take_top,
)
from kernattn.attention._mechanisms.widened import widened_once
from kernattn.attention._shapes import leading
from kernattn.attention._softmax import softmax_attention
from kernattn.errors import ParameterError, ShapeError
from kernattn.ops.block_softmax import OP


@traceable("routing_attention")
@told_keywords
@cast_once
def routing_attention(
    q: Array,
    k: Array,
    v: Array,
    centroids: Array,
    *,
    window: int,
    assign: Literal["top", "nearest"] = "top",
    causal: bool = False,
    scale: float | None = None,
    key_mask: Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return attention inside clusters of tokens around c centroids.

    Routing Transformer, Roy, Saffar, Vaswani and Grangier (2021). Tokens go by their cosines with the centroids.

    - "top", as in the paper: each centroid takes the `window` queries and the `window` keys nearest to it, and these
      queries attend to these keys. A query that several centroids took is the mean over those where it sees a key; one
      that none took is 0.
    - "nearest": each query and each key belongs to its nearest centroid alone, and a query sees the `window` keys of
      its cluster that stand about it: with `causal` the last ones at or before it.

    "top" selects over the whole sequence. It is not causal, even where `causal` hides later keys: whether a centroid
    takes a token depends on all others, and a change of the future can move the past. "nearest" asks a token and the
    centroids only, so that with `causal` no row depends on what stands after it.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
        They attend as they are: the paper normalises queries and keys.
    centroids : (heads, c, d) array
        Centroids of each head, the last leading axis, or one set for all of them; of the library of q, or of NumPy.
    window : int
        How many tokens a centroid takes, or how many keys of its cluster a query sees, where there are as many.
    assign : {"top", "nearest"}
        Who chooses: centroids their tokens, or tokens their centroid.
    causal : bool
        Whether a query sees no key after it. The queries are the last n of the l positions.
    scale : float, optional
        The factor of scores; :math:`d^{-1/2}` by default.
    key_mask : (..., l) bool array, optional
        True where there is a key. No centroid takes the others. Where there are as many queries as keys they are the
        same tokens, and "top" takes no masked query either, whose output is 0.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A query that sees no key is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit; also where q or k is traced: clusters are found on the host.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> v = np.array([[1.0], [2.0], [1.0], [2.0]])
    >>> ka.attention.routing_attention(x, x, v, np.eye(2)[None], window=2)
    array([[1.],
           [2.],
           [1.],
           [2.]])
    """
    check_arrays("qkv", q, k, v, key_mask=key_mask)
    lead = leading(2, q=q, k=k, v=v)
    points = _check_centroids(centroids, q, lead)
    window, causal = positive_integer("window", window), boolean("causal", causal)
    scale = q.shape[-1] ** -0.5 if scale is None else finite_number("scale", scale)
    OP.implementation(q, backend)
    one_of("assign", assign, ("top", "nearest"))
    xp = namespace(q=q, k=k, v=v)
    shown = None
    if key_mask is not None:
        k, v = zero_masked(k, key_mask), zero_masked(v, key_mask)
        shown = on_host("key_mask", xp.reshape(xp.broadcast_to(key_mask, (*lead, k.shape[-2])), (-1, k.shape[-2])))
    q, k, v = (xp.reshape(xp.broadcast_to(x, (*lead, *x.shape[-2:])), (-1, *x.shape[-2:])) for x in (q, k, v))
    points = np.broadcast_to(points, (*lead[:-1], len(points) if not lead else lead[-1], *points.shape[1:]))
    points = points.reshape(-1, *points.shape[-2:])
    hosts = on_host("q", q), on_host("k", k)
    if assign == "nearest":
        plan = plan_nearest(*hosts, points, window, causal, shown)
        out = softmax_attention(q, k, v, scale=scale, pattern=plan, backend=backend)
        return xp.reshape(out, (*lead, *out.shape[-2:]))
    members = take_top(*hosts, points, window, causal, shown)
    given = v.dtype
    q, k, v = widened_once(q, k, v)
    q, k, v = (_take_rows(x, rows) for x, rows in ((q, members.queries), (k, members.keys), (v, members.keys)))
    there = None if members.there is None else constant(xp, members.there, xp.bool, q)
    out = softmax_attention(q, k, v, scale=scale, key_mask=there, pattern=members.plan, backend=backend)
    out = _average_copies(out, members, hosts[0].shape[1])
    return xp.reshape(xp.astype(out, given, copy=False), (*lead, hosts[0].shape[1], v.shape[-1]))


@told_keywords
def update_centroids(centroids: Array, q: Array, k: Array, *, decay: float = 0.999) -> Array:
    r"""Return centroids that moved towards their tokens, :math:`\lambda \mu + (1 - \lambda) (\bar q + \bar k) / 2`.

    Routing Transformer, Roy et al. (2021), by means: :math:`\bar q` and :math:`\bar k` are those of the queries and of
    the keys, of norm 1, whose nearest centroid :math:`\mu` is, over all leading axes but the heads; :math:`\mu` itself
    where there are none. The paper writes sums, which grow with the number of tokens.

    Parameters
    ----------
    centroids : (heads, c, d) array
        Centroids of each head, or one set for all of them. They are not written to.
    q : (..., n, d) array
        Queries, of the library and dtype of the centroids.
    k : (..., l, d) array
        Keys.
    decay : float
        The share :math:`\lambda` that stays, from 0 to 1.

    Returns
    -------
    (heads, c, d) array
        The new centroids, of the kind, device and dtype of the centroids; gradients do not flow through them.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError
        Before any work, if an argument does not fit; also where numbers are traced.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[3.0, 0.0], [0.0, 1.0]])
    >>> ka.attention.update_centroids(np.array([[[0.8, 0.6], [0.0, 0.5]]]), x, x, decay=0.5)
    array([[[0.9 , 0.3 ],
            [0.  , 0.75]]])
    """
    check_arrays("qk", q, k)
    namespace(centroids=centroids, q=q)
    lead = leading(2, q=q, k=k)
    points = _check_centroids(centroids, q, lead)
    decay = finite_number("decay", decay)
    if not 0 <= decay <= 1:
        raise ParameterError(f"decay must be from 0 to 1; got {decay}")
    new = decay * points
    for name, x in (("q", q), ("k", k)):
        rows = group_by_head(normalise_rows(on_host(name, x)), len(points))
        new = new + (1 - decay) / 2 * average_clusters(rows, points)
    return constant(namespace(centroids=centroids), new, centroids.dtype, centroids)


def _check_centroids(centroids: Any, q: Array, lead: tuple[int, ...]) -> Floats:
    """Return the centroids on the host, of the dtype of q there; they must fit q."""
    if not isinstance(centroids, np.ndarray):
        namespace(centroids=centroids, q=q)
    check_floating("centroids", centroids)
    shape, heads = tuple(centroids.shape), (1, *lead[-1:])
    if len(shape) != 3 or 0 in shape or shape[0] not in heads or shape[2] != q.shape[-1]:
        raise ShapeError(
            f"centroids must be (heads, c, d) with d = {q.shape[-1]} and heads = {' or '.join(map(str, heads))}, "
            f"the last leading axis of q; got shape {shape}"
        )
    points = on_host("centroids", centroids)
    if not np.all(np.isfinite(points)):
        raise ParameterError("centroids must hold finite numbers; got others")
    return points.astype("float64" if dtype_name(q) == "float64" else "float32", copy=False)


def _take_rows(x: Array, rows: Integers) -> Array:
    """Return rows (H, r) of x (H, n, d) as (H, r, d)."""
    xp, (heads, n, d) = namespace(x=x), x.shape
    at = (rows + np.arange(heads)[:, None] * n).reshape(-1)
    return xp.reshape(xp.take(xp.reshape(x, (-1, d)), indices(xp, at, x), axis=0), (*rows.shape, d))


def _average_copies(out: Array, members: Members, n: int) -> Array:
    """Return the mean of what copies of each query (H, c w, e) say that see a key, (H n, e); 0 where none does.

    Queries stand by how many copies they have, and each sum runs over those that have as many.
    """
    xp, (heads, _, e) = namespace(out=out), out.shape
    copies = np.flatnonzero(members.sees)
    owner = (members.queries + np.arange(heads)[:, None] * n).reshape(-1)[copies]
    copies = copies[np.argsort(owner, kind="stable")]
    counts = np.bincount(owner, minlength=heads * n)
    order, begins = np.argsort(-counts, kind="stable"), np.cumsum(counts) - counts
    rows, wide = xp.reshape(out, (-1, e)), accumulation_dtype(xp, out)
    total = zeros(xp, (0, e), wide, rows)
    for turn in range(int(np.max(counts)), 0, -1):
        own = order[: np.count_nonzero(counts >= turn)]
        more = xp.astype(xp.take(rows, indices(xp, copies[begins[own] + turn - 1], rows), axis=0), wide, copy=False)
        total = xp.concat([more[: total.shape[0], :] + total, more[total.shape[0] :, :]], axis=0)
    size, place = total.shape[0], np.empty(heads * n, np.int64)
    total = total / constant(xp, counts[order[:size], None], wide, rows)
    total = xp.concat([total, zeros(xp, (1, e), wide, rows)], axis=0)
    total = xp.astype(total, out.dtype, copy=False)
    place[order] = np.minimum(np.arange(heads * n), size)
    return xp.take(total, indices(xp, place, rows), axis=0)
