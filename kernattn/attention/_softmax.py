"""Exact softmax attention."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj as is_array

from kernattn._arrays.bridge import autocast
from kernattn._arrays.door import crossed_at_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, accumulation_dtype, check_floating, dtype_name, namespace
from kernattn._plans.plan import ALL, CAUSAL, Plan, check_heads, check_lengths, cut_off
from kernattn._runtime.checks import boolean, finite_number, shown
from kernattn.attention._check import check_arrays, check_beside
from kernattn.attention._shapes import leading
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, ShapeError
from kernattn.ops.block_softmax import OP


@traceable("softmax_attention")
@crossed_at_once
def softmax_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | Array | None = None,
    causal: bool = False,
    key_mask: Array | None = None,
    key_bias: Array | None = None,
    score_bias: Array | None = None,
    pattern: Pattern | Plan | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return exact attention, :math:`o_i = \sum_j e^{s_{ij}} v_j / \sum_j e^{s_{ij}}`.

    Scores are :math:`s_{ij} = s q_i^T k_j + b_j + c_{ij}`, and sums run over the keys that row i sees. Vaswani
    et al. (2017), by an online softmax over blocks of keys (Milakov and Gimelshein 2018; Rabe and Staats 2021): O(n)
    memory, never an n x l matrix.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., l, d) array
        Keys. Leading axes broadcast against those of q.
    v : (..., l, e) array
        Values.
    scale : float or () array, optional
        The factor s; :math:`d^{-1/2}` by default. An array, such as a tensor to be learnt, is multiplied into the
        queries.
    causal : bool
        Whether a query sees only what stands at or before it. The queries are the last n of the l positions: row i
        sees the keys :math:`j \le i + l - n`.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    key_bias : (..., l) array, optional
        What is added to all scores of a key, :math:`b_j`, of the dtype of q; -inf hides it, and rows that see one of
        NaN or infinity are NaN. The logarithm of a count makes a key stand for so many.
    score_bias : (..., n, l) array, optional
        What is added to the score of each query and key, :math:`c_{ij}`, of the dtype of q: positions relative to each
        other, or a mask of 0 and -inf. Leading axes broadcast to those of the outputs, so that heads can share it. -inf
        hides a key from a row. It is read a tile at a time, in place. Where it is a mask alone, `pattern` skips what
        nobody sees.
    pattern : Pattern or Plan, optional
        Which keys a row sees: one of `kernattn.patterns`, or the plan that one makes for these lengths; all by default.
        With `causal` it sees what both admit.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row that sees no key is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((1, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> ka.softmax_attention(q, k, v)
    array([[1.5]])
    """
    given = softmax_arguments(q, k, v, scale, causal, key_mask, key_bias, score_bias, pattern)
    out, _ = OP.implementation(q, backend)(*given)
    return out


@traceable("softmax_with_lse")
@crossed_at_once
def softmax_with_lse(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | Array | None = None,
    causal: bool = False,
    key_mask: Array | None = None,
    key_bias: Array | None = None,
    score_bias: Array | None = None,
    pattern: Pattern | Plan | None = None,
    backend: str | None = None,
) -> tuple[Array, Array]:
    r"""Return exact attention and its log normaliser, :math:`lse_i = \log \sum_j e^{s_{ij}}`.

    With it, attention over parts of the keys merges into attention over all of them (Dao et al. 2022). The parameters
    and errors are those of :func:`softmax_attention`.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the dtype of the inputs.
    lse : (..., n) array
        Log normalisers, float64 for float64 inputs, else float32; -inf for a row that sees no key. On the host, one
        that no float can tell is the largest float, or minus that.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((1, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> out, lse = ka.attention.softmax_with_lse(q, k, v)
    >>> lse.round(4)
    array([1.3863])
    """
    given = softmax_arguments(q, k, v, scale, causal, key_mask, key_bias, score_bias, pattern)
    out, lse = OP.implementation(q, backend)(*given)
    return out, lse


def softmax_arguments(
    q: Array,
    k: Array,
    v: Array,
    scale: float | Array | None,
    causal: bool,
    key_mask: Array | None,
    key_bias: Array | None,
    score_bias: Array | None,
    pattern: Pattern | Plan | None,
) -> tuple[Any, ...]:
    """Return the op's arguments."""
    q, k, v = autocast(q, k, v)
    if key_bias is not None:
        (key_bias,) = autocast(key_bias)
    if score_bias is not None:
        (score_bias,) = autocast(score_bias)
    check_arrays("qkv", q, k, v, key_mask=key_mask, key_bias=key_bias)
    if score_bias is not None:
        check_score_bias(q, k, v, score_bias)
    if scale is None:
        factor = q.shape[-1] ** -0.5
    elif isinstance(scale, int | float | np.generic) or not is_array(scale):
        factor = finite_number("scale", scale)
    else:  # a framework learns it through the product
        q, factor = scaled_queries(q, scale), 1.0
    plan = CAUSAL if boolean("causal", causal) else ALL
    if pattern is not None:
        plan = plan_of(pattern, q, k, v, causal)
    return q, k, v, factor, plan, key_mask, key_bias, score_bias


def check_score_bias(q: Array, k: Array, v: Array, bias: Array) -> None:
    """Raise unless a bias is (..., n, l), of the dtype of the queries, and broadcasts to the outputs."""
    namespace(q=q, score_bias=bias)
    if dtype_name(bias) == "bool":
        raise DTypeError(
            "score_bias must hold numbers; got bool: a mask of which query sees which key is "
            "pattern=ka.patterns.from_mask(mask), or a bias of 0 and -inf"
        )
    check_beside(q, "score_bias", bias)
    lead, pairs = leading(2, q=q, k=k, v=v), (q.shape[-2], k.shape[-2])
    fits = len(lead) >= bias.ndim - 2 >= 0 and tuple(bias.shape[-2:]) == pairs
    if not fits or any(size not in (1, full) for size, full in zip(bias.shape[-3::-1], lead[::-1], strict=False)):
        raise ShapeError(
            f"score_bias must be {pairs}, of each query and key, after leading axes that broadcast to {lead}; "
            f"got shape {tuple(bias.shape)} (what is added to all scores of a key is key_bias)"
        )


def scaled_queries(q: Array, scale: Array) -> Array:
    """Return queries times a scale () that is an array of their library, by way of the dtype in which sums run."""
    xp = namespace(q=q, scale=scale)
    check_floating("scale", scale)
    if tuple(scale.shape) != ():
        raise ShapeError(f"scale must be a number, or an array of shape (); got shape {tuple(scale.shape)}")
    wide = accumulation_dtype(xp, q)
    return xp.astype(xp.astype(q, wide, copy=False) * xp.astype(scale, wide, copy=False), q.dtype, copy=False)


def plan_of(pattern: Pattern | Plan, q: Array, k: Array, v: Array, causal: bool) -> Plan:
    """Return the plan of a pattern for these arrays."""
    n, length = index(q.shape[-2]), index(k.shape[-2])  # a plan is for known numbers, also where a graph has symbols
    given: object = pattern
    if isinstance(given, Plan) and given.kind == "parts":
        check_lengths(given, n, length)
        plan = cut_off(given) if causal else given
    elif isinstance(given, Pattern):
        plan = given.plan(n, length, causal=causal)
    else:
        raise DTypeError(
            "pattern must be a Pattern of kernattn.patterns, such as ka.patterns.from_mask(mask), or its Plan; "
            f"got {shown(pattern)}"
        )
    check_heads(plan, leading(2, q=q, k=k, v=v))
    return plan
