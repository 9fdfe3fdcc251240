"""Attention to keys and values that a strided convolution has made fewer."""

from __future__ import annotations

from functools import lru_cache
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, namespace, without_flags, zero_masked, zeros
from kernattn._plans.intervals import part_of
from kernattn._plans.plan import ALL, Plan
from kernattn._runtime.checks import boolean, positive_integer
from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention._check import check_arrays, check_beside
from kernattn.attention._mechanisms.widened import attend_to, transform
from kernattn.errors import ShapeError


@traceable("compressed_attention")
@told_keywords
@cast_once
@without_flags
def compressed_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    factor: int,
    weights_k: Array,
    weights_v: Array,
    causal: bool = False,
    key_mask: Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return attention to compressed keys, :math:`o_i = \sum_b e^{q_i^T k'_b / \sqrt d} v'_b / \sum_b e^{...}`.

    :math:`k'_b = \sum_t W^k_t{}^T k_{bf + t}` and :math:`v'_b = \sum_t W^v_t{}^T v_{bf + t}`, t = 0 to f - 1: a
    convolution whose kernel and stride are the factor f. Memory-compressed attention, Liu et al. (2018), section 4.2.3.
    The last block may be short; zeros fill it, as they do in place of masked tokens.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    factor : int
        How many tokens a block has.
    weights_k : (factor, d, d) array
        The convolution of keys, of the dtype of q: what enters, then what leaves.
    weights_v : (factor, e, e) array
        The convolution of values.
    causal : bool
        Whether a query sees only what stands at or before it. The queries are the last n of the l positions. A block
        is seen from its last token on, so that the first f - 1 rows see nothing; a short last block is seen from
        token l - 1 on.
    key_mask : (..., l) bool array, optional
        True where there is a key. A block of masked tokens alone is not seen.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row that sees no block is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, v = np.zeros((4, 1)), np.arange(4.0)[:, None]
    >>> mean = np.full((2, 1, 1), 0.5)
    >>> ka.attention.compressed_attention(q, q, v, factor=2, weights_k=mean, weights_v=mean, causal=True).T
    array([[0. , 0.5, 0.5, 1.5]])
    """
    check_arrays("qkv", q, k, v, key_mask=key_mask)
    xp, factor = namespace(q=q), positive_integer("factor", factor)
    for name, weights, size in (("weights_k", weights_k, k.shape[-1]), ("weights_v", weights_v, v.shape[-1])):
        check_beside(q, name, weights)
        if tuple(weights.shape) != (factor, size, size):
            raise ShapeError(f"{name} must be of shape {(factor, size, size)}; got {tuple(weights.shape)}")
    n, length, plan = index(q.shape[-2]), index(k.shape[-2]), ALL
    if boolean("causal", causal):
        if n > length:
            raise ShapeError(f"causal queries are the last n of the l tokens; got n = {n}, l = {length}")
        plan = plan_blocks(n, length, factor)
    keys, values = (_convolve(xp, zero_masked(x, key_mask), w) for x, w in ((k, weights_k), (v, weights_v)))
    there = None if key_mask is None else xp.any(_blocks(xp, key_mask[..., None], factor), axis=-1)
    out = attend_to(q, keys, values, key_mask=there, plan=plan, backend=backend)
    return xp.astype(out, q.dtype, copy=False)


def _convolve(xp: ModuleType, x: Array, weights: Array) -> Array:
    """Return blocks (..., m, c) of x (..., l, c), in the dtype of sums."""
    factor, size = weights.shape[:2]
    blocks = _blocks(xp, x, factor)
    return transform(xp, blocks, xp.reshape(weights, (factor * size, size)))


def _blocks(xp: ModuleType, x: Array, factor: int) -> Array:
    """Return the rows x (..., l, c) of each block side by side, (..., m, factor c), zeros after the last."""
    *lead, length, size = x.shape
    missing = -length % factor
    if missing:
        x = xp.concat([x, zeros(xp, (*lead, missing, size), x.dtype, x)], axis=-2)
    return xp.reshape(x, (*lead, (length + missing) // factor, factor * size))


@lru_cache(maxsize=32)
def plan_blocks(n: int, length: int, factor: int) -> Plan:
    """Return the plan of blocks whose last token stands at or before a row."""
    position = np.arange(length - n, length)
    whole = (position + 1) // factor
    seen = np.where(position == length - 1, -(-length // factor), whole)
    part: Any = part_of(np.zeros((1, n), np.int64), seen[None], np.arange(n + 1), int(seen[-1]))
    return Plan("parts", n, int(seen[-1]), ((part,),))
