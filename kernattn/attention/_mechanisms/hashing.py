"""Attention among hashed tokens."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, namespace, zero_masked
from kernattn._runtime.checks import boolean, finite_number
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.units import in_units
from kernattn.attention._check import check_arrays
from kernattn.attention._mechanisms.widened import widened_once
from kernattn.attention._shapes import leading
from kernattn.attention._softmax import softmax_with_lse
from kernattn.attention.patterns import lsh
from kernattn.ops.block_softmax import OP

SMALL = 1e-20  # squares of ordinary rows lie between it and its inverse


@traceable("lsh_attention")
@told_keywords
@cast_once
def lsh_attention(
    x: Array,
    v: Array,
    *,
    rotations: Array,
    chunk: int,
    causal: bool = False,
    scale: float | None = None,
    key_mask: Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return exact attention of hashed tokens, :math:`o_i = \sum_j e^{s x_i^T k_j} v_j / \sum_j e^{s x_i^T k_j}`.

    Reformer, Kitaev, Kaiser and Levskaya (2020): queries and keys are one, :math:`k_j = x_j / |x_j|`, and the sums run
    over the tokens that share a chunk with i, or stand in the one before it, in at least one round
    (:func:`kernattn.patterns.lsh`). Each counts once, however often they meet, so that this is softmax attention over
    the union of the rounds. A token sees itself only where it sees nothing else; it then is its own value. Positions,
    not the sorted order, decide what stands before a token.

    Parameters
    ----------
    x : (..., n, d) array
        Tokens, of dtype float16, bfloat16, float32 or float64. Each of the leading axes' heads has an order of its own.
    v : (..., n, e) array
        Values. Leading axes broadcast against those of x.
    rotations : (rounds, d, buckets // 2) array
        A matrix for each round, drawn from the normal law as a rule; of the library of x, or of NumPy.
    chunk : int
        How many tokens a chunk has. About n / chunk buckets fill a chunk each.
    causal : bool
        Whether a token sees only what stands before it. Buckets of later tokens still decide who shares its chunk.
    scale : float, optional
        The factor s; :math:`d^{-1/2}` by default.
    key_mask : (..., n) bool array, optional
        True where there is a token. One that is hidden is in no bucket: it sees nothing, and nobody sees it.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A token that is hidden is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit; also where x is traced: buckets are found on the host.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> ka.attention.lsh_attention(x, np.arange(4.0)[:, None], rotations=np.eye(2)[None], chunk=2)
    array([[2.        ],
           [2.0051321 ],
           [0.        ],
           [1.01830248]])
    """
    check_arrays("xv", x, v, key_mask=key_mask)
    OP.implementation(x, backend)
    scale = x.shape[-1] ** -0.5 if scale is None else finite_number("scale", scale)
    xp, causal = namespace(x=x, v=v), boolean("causal", causal)
    lead, (n, dim), e = leading(2, x=x, v=v), x.shape[-2:], v.shape[-1]
    x = xp.reshape(xp.broadcast_to(x, (*lead, n, dim)), (-1, n, dim))
    v = xp.reshape(xp.broadcast_to(v, (*lead, n, e)), (-1, n, e))
    if key_mask is not None:
        key_mask = xp.reshape(xp.broadcast_to(key_mask, (*lead, n)), (-1, n))
        x, v = zero_masked(x, key_mask), zero_masked(v, key_mask)
    pattern = lsh(x, rotations=rotations, chunk=chunk, key_mask=key_mask)
    plan, given = replace(pattern, own=False).plan(n, causal=causal), v.dtype
    x, v = widened_once(x, v)
    out, lse = softmax_with_lse(x, _normalise_rows(xp, x), v, scale=scale, pattern=plan, backend=backend)
    alone = lse == -xp.inf
    alone = alone if key_mask is None else alone & key_mask
    if not anywhere(~alone) or anywhere(alone):
        out = xp.where(alone[..., None], v, out)
    return xp.reshape(xp.astype(out, given, copy=False), (*lead, n, e))


def _normalise_rows(xp: ModuleType, x: Array) -> Array:
    """Return x / |x|, whatever the size of x; a row of zeros stays."""
    rows = xp.astype(x, accumulation_dtype(xp, x), copy=False)
    with np.errstate(over="ignore", under="ignore"):
        squares = xp.vecdot(rows, rows)[..., None]
    ordinary = (squares > SMALL) & (squares < 1 / SMALL)
    if anywhere(~ordinary) or not anywhere(ordinary):
        rows, _ = in_units(xp, rows)
        squares = xp.vecdot(rows, rows)[..., None]
        squares = xp.where(squares == 0, xp.ones_like(squares), squares)
    with np.errstate(under="ignore", invalid="ignore"):
        rows = rows / xp.sqrt(squares)
    return xp.astype(rows, x.dtype, copy=False)
