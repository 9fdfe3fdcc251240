"""Linear attention of whole sequences, batched and causal."""

from __future__ import annotations

from typing import Any

from kernattn._arrays.bridge import autocast
from kernattn._arrays.door import crossed_at_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, namespace
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.peaked import LinearState, LogNormaliser, log_normaliser
from kernattn.attention._check import check_arrays, check_causal, feature_map
from kernattn.attention._decayed import decayed_causal
from kernattn.attention._lowering import implementation, lowered, state_of, sums_of
from kernattn.attention._mechanisms.hybrid import packed_arguments, run_op
from kernattn.features import FeatureMap
from kernattn.ops.causal import OP as CAUSAL
from kernattn.ops.records import LINEAR


@traceable("linear_attention")
@crossed_at_once
def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return :math:`o_i = \phi(q_i)^T \sum_j \phi(k_j) v_j^T \,/\, \phi(q_i)^T \sum_j \phi(k_j)`.

    Katharopoulos et al. (2020), eq. 5: time and memory linear in the number of tokens. It is `key_state` followed by
    `attend`; few tokens in host memory go without the sums, by products of queries and keys. There is no epsilon: sums
    are kept in units of a peak for each feature, and no norm of the inputs overflows them. The guide on numerics says
    how many octaves the features of one row may lie apart.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., l, d) array
        Keys. Leading axes broadcast against those of q: for grouped queries, q is (..., kv_heads, group, n, d) and k
        is (..., kv_heads, 1, l, d).
    v : (..., l, e) array
        Values.
    phi : FeatureMap
        The feature map. The scale of the dot product is a part of its kernel.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and each token, of as many queries as keys, reads the sums
        of its own: those up to its place and those after it, by two walks of causal attention.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row whose normaliser is exactly 0 is 0; a signed map
        (trigonometric) can give normalisers below 0, which are left as they are.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((1, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> ka.linear_attention(q, k, v, ka.features.elu1())
    array([[1.5]])
    """
    q, k, v = autocast(q, k, v)
    if segment_ids is not None:
        return run_op(packed_arguments(q, k, v, phi, key_mask, segment_ids), backend)[0]
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask)
    queries, keys, q_spec, k_spec = lowered(phi, q, k, key_mask)
    run = implementation(LINEAR, v, backend, queries, keys)
    out, _ = run(keys, v, k_spec, key_mask, queries, q_spec, q.dtype, False)
    return out


@traceable("causal_linear_attention")
@crossed_at_once
def causal_linear_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    g: Array | None = None,
    gk: Array | None = None,
    backend: str | None = None,
) -> tuple[Array, LinearState]:
    r"""Return :math:`o_i = \phi(q_i)^T S_i / \phi(q_i)^T z_i` and the last state.

    :math:`S_i = \sum_{j \le i} \phi(k_j) v_j^T` and :math:`z_i = \sum_{j \le i} \phi(k_j)`, Katharopoulos et al.
    (2020), eqs. 9 to 12, in time linear in n. What stands after a token does not change its output: no maximum, and no
    scale, is taken over later keys where it could. With `g` or `gk` keys fade: :math:`S_i = e^{g_i} S_{i-1} + \phi(k_i)
    v_i^T` and z alike, so that an output stays a weighted mean; a decay shifts the peak of the sums.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., n, d) array
        Keys. Leading axes broadcast against those of q, as in `linear_attention`.
    v : (..., n, e) array
        Values.
    phi : FeatureMap
        The feature map.
    state : LinearState, optional
        The state of what came before, of leading axes those of k, v and decays together.
    key_mask : (..., n) bool array, optional
        True where there is a key; a masked token is still a query.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other. The incoming state
        is the history of the first segment; the one returned belongs to the last.
    g : (..., n) or (..., 1) array, optional
        Natural logarithms of decays, at most 0, -inf allowed. A masked token fades nothing.
    gk : (..., n, M) array, optional
        Logarithms of decays of each feature; they add to those of `g`.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row whose normaliser is exactly 0 is 0.
    state : LinearState
        The state after the last token, from which the next call goes on exactly.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((4, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> out, state = ka.causal_linear_attention(q, k, v, ka.features.elu1())
    >>> out.T
    array([[0. , 0.5, 1. , 1.5]])
    >>> out, state = ka.causal_linear_attention(q, k, v, ka.features.elu1(), g=np.log([0.5]))
    >>> out.T.round(3)  # weights 1/2, 1/4, ... of what came before
    array([[0.   , 0.667, 1.429, 2.267]])
    """
    if g is not None or gk is not None:
        q, k, v = autocast(q, k, v)
        check_causal(q, k, v, phi, None, key_mask, segment_ids)
        return decayed_causal(q, k, v, phi, g, gk, state, key_mask, segment_ids, backend)
    out, _, after = _causal(q, k, v, phi, state, key_mask, segment_ids, backend, False)
    return out, after


@traceable("causal_with_lse")
@told_keywords
def causal_with_lse(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    backend: str | None = None,
) -> tuple[Array, LogNormaliser, LinearState]:
    r"""Return causal linear attention, the logarithm of its normaliser :math:`Z_i = \phi(q_i)^T z_i`, and the state.

    Gradients need it, and with it outputs over parts of the keys merge into the output over all of them:
    :math:`o = \sum_p Z_p o_p / \sum_p Z_p`. The parameters and errors are those of :func:`causal_linear_attention`.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs.
    normaliser : LogNormaliser
        The log (..., n) of the size of Z and its sign (..., n), which a signed map can make -1, float64 for float64
        inputs, else float32; -inf and 0 where Z is 0.
    state : LinearState
        The state after the last token.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((3, 2)), np.zeros((3, 2)), np.arange(3.0)[:, None]
    >>> out, normaliser, state = ka.attention.causal_with_lse(q, k, v, ka.features.elu1())
    >>> (normaliser.sign * np.exp(normaliser.log)).round(4)  # two features of 1 for every key seen
    array([2., 4., 6.])
    """
    out, normalisers, after = _causal(q, k, v, phi, state, key_mask, segment_ids, backend, True)
    return out, log_normaliser(namespace(out=out), normalisers), after


def _causal(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    backend: str | None,
    normaliser: bool,
) -> tuple[Array, Any, LinearState]:
    q, k, v = autocast(q, k, v)
    check_causal(q, k, v, phi, state, key_mask, segment_ids)
    before = None if state is None else sums_of(state)
    queries, keys, q_spec, k_spec = lowered(phi, q, k, key_mask)
    run = implementation(CAUSAL, v, backend, queries, keys)
    out, normalisers, after = run(queries, keys, v, q_spec, k_spec, before, key_mask, segment_ids, normaliser)
    return out, normalisers, state_of(after, phi.fingerprint)
