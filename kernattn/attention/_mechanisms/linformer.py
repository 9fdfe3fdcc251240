"""Attention to keys and values that a linear map along the tokens has made fewer."""

from __future__ import annotations

from operator import index

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    frozen,
    namespace,
    without_flags,
    zero_masked,
)
from kernattn._runtime.checks import boolean, check_room, one_of, positive_integer
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG, generator
from kernattn.attention._check import check_arrays, check_beside
from kernattn.attention._mechanisms.widened import attend_to, mix
from kernattn.attention._shapes import leading
from kernattn.errors import ParameterError, ShapeError

KINDS = ("gaussian", "pooling", "convolution")


@traceable("linformer_attention")
@told_keywords
@cast_once
@without_flags
def linformer_attention(
    q: Array,
    k: Array,
    v: Array,
    e: Array,
    f: Array,
    *,
    key_mask: Array | None = None,
    causal: bool = False,
    backend: str | None = None,
) -> Array:
    r"""Return attention to r mixtures of the tokens, :math:`\mathrm{softmax}(q (E k)^T / \sqrt d)\, F v`.

    Linformer, Wang et al. (2020), eq. 7. Masked tokens are 0 before they are mixed, so that they are in no mixture.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    e, f : (r, l) or (heads, r, l) array
        The projections of keys and of values, of the dtype of q. They are for l tokens: a slice of one is another
        projection, so other lengths are refused; pad and mask shorter inputs.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    causal : bool
        Only False: each mixture has tokens of the whole sequence, and no mask afterwards takes the later ones out.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 6, 2))
    >>> e, f = ka.attention.linformer_projections(3, 6, kind="pooling")
    >>> ka.attention.linformer_attention(q, k, v, e, f).shape
    (6, 2)
    """
    check_arrays("qkv", q, k, v, key_mask=key_mask)
    if boolean("causal", causal):
        raise ParameterError(
            "causal must be False for Linformer: a projection mixes tokens of the whole sequence, so that no mask "
            "hides those after a query; got True"
        )
    xp, length = namespace(q=q), k.shape[-2]
    for name, weights in (("e", e), ("f", f)):
        check_beside(q, name, weights)
        if weights.ndim not in (2, 3) or weights.shape[-1] != length or weights.shape[-2] < 1:
            raise ShapeError(f"{name} must be (r, l) or (heads, r, l) with l = {length}; got {tuple(weights.shape)}")
    if e.shape[-2] != f.shape[-2]:
        raise ShapeError(f"e and f must have as many rows; got {tuple(e.shape)} and {tuple(f.shape)}")
    heads = {index(x.shape[0]) for x in (e, f) if x.ndim == 3}
    lead = leading(2, q=q, k=k, v=v)
    if not heads <= {1, *map(index, lead[-1:])}:
        raise ShapeError(f"e and f are for one head or those of the last leading axis of {lead}; got {sorted(heads)}")
    keys, values = (mix(xp, weights, zero_masked(x, key_mask)) for weights, x in ((e, k), (f, v)))
    out = attend_to(q, keys, values, backend=backend)
    return xp.astype(out, q.dtype, copy=False)


def linformer_projections(r: int, l: int, *, kind: str = "gaussian", rng: RNG = None) -> tuple[Float64, Float64]:  # noqa: E741
    r"""Return projections E and F of l tokens to r: :math:`E, F \in R^{r \times l}`.

    Wang et al. (2020): "gaussian" draws entries from N(0, 1 / r), as Theorem 1 does, E and F apart; "pooling" takes
    means of r segments of nearly equal length; "convolution" mixes each segment by the same weights, a kernel for keys
    and one for values, drawn from N(0, 1 / s) for segments of up to s tokens. Training begins with them: of itself only
    pooling comes near to exact attention.

    Parameters
    ----------
    r : int
        How many mixtures.
    l : int
        How many tokens, r at least.
    kind : {"gaussian", "pooling", "convolution"}
        The projection.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        What draws it.

    Returns
    -------
    e, f : (r, l) float64 arrays
        In host memory, read-only; cast them to the dtype of the tokens.

    Raises
    ------
    ParameterError
        If a number is not allowed.

    Examples
    --------
    >>> import kernattn as ka
    >>> e, f = ka.attention.linformer_projections(2, 5, kind="pooling")
    >>> e.round(2)
    array([[0.5 , 0.5 , 0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.33, 0.33, 0.33]])
    """
    r, length = positive_integer("r", r), positive_integer("l", l)
    one_of("kind", kind, KINDS)
    if r > length:
        raise ParameterError(f"r must be at most l; got r = {r}, l = {length}")
    check_room("projections", (2, r, length))
    source = generator(rng)
    if kind == "gaussian":
        e, f = source.standard_normal((2, r, length)) / np.sqrt(r)
        return frozen(e), frozen(f)
    begins = np.arange(r + 1) * length // r
    segment = np.repeat(np.arange(r), np.diff(begins))
    if kind == "pooling":
        weights = np.tile(1 / np.diff(begins)[segment], (2, 1))
    else:
        most = int(np.max(np.diff(begins)))
        weights = source.standard_normal((2, most))[:, np.arange(length) - begins[segment]] / np.sqrt(most)
    both = np.zeros((2, r, length))
    both[:, segment, np.arange(length)] = weights
    return frozen(both[0]), frozen(both[1])
