"""States: keys and values summarised, read and merged."""

from __future__ import annotations

from typing import Any

from kernattn._arrays.bridge import autocast
from kernattn._arrays.door import crossed_at_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, accumulation_dtype, check_floating, namespace
from kernattn._arrays.plain import on_plain
from kernattn._runtime.checks import check_room, positive_integer, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.peaked import LinearState, LogNormaliser, empty, log_normaliser, merge
from kernattn.attention._check import check_arrays, check_map, feature_map
from kernattn.attention._check_states import check_draws, check_is_state, linear_state
from kernattn.attention._gated import GatedState
from kernattn.attention._gated_states import GatedStretch, merge_gated
from kernattn.attention._lowering import implementation, lowered_keys, lowered_queries, state_of, sums_of
from kernattn.errors import ParameterError, ShapeError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.ops.attend import OP as ATTEND
from kernattn.ops.key_state import OP as KEY_STATE


@traceable("initial_state")
def initial_state(phi: FeatureMap, batch_shape: tuple[int, ...], value_dim: int, like: Array) -> LinearState:
    """Return the state that has seen nothing: S = 0, z = 0, every peak -inf.

    Parameters
    ----------
    phi : FeatureMap
        The feature map.
    batch_shape : tuple of int
        Leading axes of k and v.
    value_dim : int
        Dimension e of the values.
    like : (..., d) array
        An array of the keys' kind, device, dtype and last axis.

    Returns
    -------
    LinearState
        The empty state, float64 for float64, else float32.

    Raises
    ------
    DTypeError, ShapeError, ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> state = ka.initial_state(ka.features.elu1(), (8,), value_dim=4, like=np.zeros(16, dtype=np.float32))
    >>> state.s.shape, state.z.shape, state.s.dtype
    ((8, 16, 4), (8, 16), dtype('float32'))
    """
    (like,) = autocast(like)
    xp = namespace(like=like)
    check_floating("like", like)
    if like.ndim < 1:
        raise ShapeError(f"like must be (..., d); got shape {tuple(like.shape)}")
    check_map(feature_map(phi), like=like)
    given: object = batch_shape
    if not isinstance(given, tuple | list):
        raise ParameterError(f"batch_shape must be a tuple of positive integers; got {shown(given)}")
    lead = tuple(positive_integer("batch_shape's entry", size) for size in given)
    e = positive_integer("value_dim", value_dim)
    rows = phi.num_features_of(like.shape[-1])
    if phi.key_spec is None:
        peaks = phi._scaled_features(xp.zeros_like(like[..., None, :]), True).log_scale.shape[-1]
    else:
        peaks = rows if phi.key_spec.per_feature else 1
    check_room("the state", (*lead, rows, e), 4)
    sums = empty(xp, lead, rows, peaks, e, accumulation_dtype(xp, like), like)
    return state_of(sums, phi.fingerprint)


@traceable("key_state")
@crossed_at_once
def key_state(
    k: Array, v: Array, phi: FeatureMap, *, key_mask: Array | None = None, backend: str | None = None
) -> LinearState:
    r"""Return the state of keys and values, :math:`S = \sum_j \phi(k_j) v_j^T` and :math:`z = \sum_j \phi(k_j)`.

    Parameters
    ----------
    k : (..., n, d) array
        Keys.
    v : (..., n, e) array
        Values.
    phi : FeatureMap
        The feature map.
    key_mask : (..., n) bool array, optional
        True where there is a key.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    LinearState
        The state, for `attend`, `merge_states`, `linear_attention_step` and `causal_linear_attention`.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> state = ka.key_state(np.zeros((3, 2)), np.ones((3, 1)), ka.features.elu1())
    >>> state.s.T, state.z
    (array([[3., 3.]]), array([3., 3.]))
    """
    k, v = autocast(k, v)
    check_arrays("kv", k, v, phi=feature_map(phi), key_mask=key_mask)
    keys, spec = lowered_keys(phi, k, key_mask)
    run = implementation(KEY_STATE, v, backend, keys)
    return state_of(run(keys, v, spec, key_mask), phi.fingerprint)


@traceable("attend")
@crossed_at_once
def attend(state: LinearState, q: Array, phi: FeatureMap, *, backend: str | None = None) -> Array:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` for queries against a state.

    Parameters
    ----------
    state : LinearState
        What `key_state` made of the keys and values.
    q : (..., n, d) array
        Queries. Leading axes broadcast against those of the state.
    phi : FeatureMap
        The map that made the state.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of q.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> state = ka.key_state(np.zeros((3, 2)), np.array([[1.0], [2.0], [6.0]]), phi)
    >>> ka.attend(state, np.zeros((1, 2)), phi)
    array([[3.]])
    """
    return _attend_state(state, q, phi, backend, False)[0]


@traceable("attend_with_lse")
@told_keywords
def attend_with_lse(
    state: LinearState, q: Array, phi: FeatureMap, *, backend: str | None = None
) -> tuple[Array, LogNormaliser]:
    r"""Return `attend` and the logarithm of its normaliser, :math:`Z_i = \phi(q_i)^T z`.

    With it, outputs over parts of the keys merge into the output over all of them: :math:`o = \sum_p Z_p o_p /
    \sum_p Z_p`. The parameters and errors are those of :func:`attend`.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the kind, device and dtype of q.
    normaliser : LogNormaliser
        The log (..., n) of the size of Z and its sign (..., n), which a signed map can make -1, float64 for float64
        inputs, else float32; -inf and 0 where Z is 0.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> state = ka.key_state(np.zeros((3, 2)), np.array([[1.0], [2.0], [6.0]]), phi)
    >>> out, normaliser = ka.attention.attend_with_lse(state, np.zeros((1, 2)), phi)
    >>> (normaliser.sign * np.exp(normaliser.log)).round(4)  # three keys, two features of 1
    array([6.])
    """
    out, normalisers = _attend_state(state, q, phi, backend, True)
    return out, log_normaliser(namespace(out=out), normalisers)


def _attend_state(
    state: LinearState, q: Array, phi: FeatureMap, backend: str | None, normaliser: bool
) -> tuple[Array, Any]:
    (q,) = autocast(q)
    check_arrays("q", q, phi=feature_map(phi), state=linear_state(state))
    queries, spec = lowered_queries(phi, q, state.peak.shape[-1])
    run = implementation(ATTEND, q, backend, queries)
    out, normalisers = run(sums_of(state), queries, spec, q.dtype, normaliser)
    return out, normalisers


@traceable("merge_states")
@on_plain
def merge_states(a: Any, b: Any) -> Any:
    r"""Return the state of what either has seen: associative, and an empty state changes nothing.

    :math:`S = S_a + S_b` and :math:`z = z_a + z_b`, in units of the larger of both peaks. States of gated attention
    are merged in their order, :math:`S = \Phi_b S_a + S_b` (:func:`kernattn.attention.gated_state`).

    Parameters
    ----------
    a, b : LinearState, GatedState or GatedStretch
        States of one draw of a map; or a gated state, or stretch, and the stretch that comes after it.

    Returns
    -------
    LinearState, GatedState or GatedStretch
        Their sum, of the kind of a.

    Raises
    ------
    StateMismatchError
        If the states come from different draws or have different shapes.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi, k, v = ka.features.elu1(), np.zeros((3, 2)), np.ones((3, 1))
    >>> state = ka.merge_states(ka.key_state(k[:1], v[:1], phi), ka.key_state(k[1:], v[1:], phi))
    >>> state.z
    array([3., 3.])
    """
    if isinstance(a, GatedState | GatedStretch):
        if not isinstance(b, GatedStretch):
            raise StateMismatchError(
                f"after a gated state comes a GatedStretch, as gated_state returns it; got {type(b).__name__}"
            )
        return merge_gated(a, b)
    check_is_state(a=a, b=b)
    xp = namespace(a=a.s, b=b.s)
    check_draws(a.fingerprint, b.fingerprint)
    if tuple(a.s.shape) != tuple(b.s.shape) or a.s.dtype != b.s.dtype or tuple(a.peak.shape) != tuple(b.peak.shape):
        raise StateMismatchError(
            f"states to merge must have one shape and dtype; got s {tuple(a.s.shape)} {a.s.dtype} "
            f"and {tuple(b.s.shape)} {b.s.dtype}"
        )
    return state_of(merge(xp, sums_of(a), sums_of(b)), a.fingerprint)
