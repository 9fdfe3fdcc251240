"""Linear attention: all at once, causal, one token at a time, and as a state."""

from __future__ import annotations

from kernattn._array import Array, accumulation_dtype, check_floating, namespace
from kernattn._check import positive_integer
from kernattn.attention.check import (
    check_arrays,
    check_draws,
    check_is_state,
    check_map,
    check_out,
    check_state,
    check_step,
    leading,
)
from kernattn.errors import ShapeError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.ops.attend import OP as ATTEND
from kernattn.ops.causal import OP as CAUSAL
from kernattn.ops.key_state import OP as KEY_STATE
from kernattn.ops.peaked import LinearState, PeakedSum, empty, merge
from kernattn.ops.spec import PER_FEATURE, ScaledFeatures
from kernattn.ops.step import OP as STEP

__all__ = [
    "attend",
    "causal_linear_attention",
    "initial_state",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "merge_states",
]


def linear_attention(
    q: Array, k: Array, v: Array, phi: FeatureMap, *, key_mask: Array | None = None, backend: str | None = None
) -> Array:
    r"""Return :math:`o_i = \phi(q_i)^T \sum_j \phi(k_j) v_j^T \,/\, \phi(q_i)^T \sum_j \phi(k_j)`.

    Katharopoulos et al. (2020), eq. 5: time and memory linear in the number of tokens. It is `key_state` followed by
    `attend`. There is no epsilon: sums are kept in units of a peak for each feature, and no norm of the inputs
    overflows or underflows them.

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
    check_arrays(key_mask, q=q, k=k, v=v)
    check_map(phi, q=q)
    queries, keys = _lowered(phi, q=q, k=k)
    state = KEY_STATE.implementation(v, backend)(keys, v, phi.spec, key_mask)
    return ATTEND.implementation(v, backend)(state, queries, phi.spec, q.dtype)


def causal_linear_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    backend: str | None = None,
) -> tuple[Array, LinearState]:
    r"""Return :math:`o_i = \phi(q_i)^T S_i / \phi(q_i)^T z_i` and the last state.

    :math:`S_i = \sum_{j \le i} \phi(k_j) v_j^T` and :math:`z_i = \sum_{j \le i} \phi(k_j)`, Katharopoulos et al.
    (2020), eqs. 9 to 12, in time linear in n. What stands after a token does not change its output: no maximum, and no
    scale, is taken over later keys where it could.

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
        The state of what came before, of leading axes those of k and v together.
    key_mask : (..., n) bool array, optional
        True where there is a key; a masked token is still a query.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other. The incoming state
        is the history of the first segment; the one returned belongs to the last.
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
    ShapeError, DTypeError, MixedLibraryError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((4, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> out, state = ka.causal_linear_attention(q, k, v, ka.features.elu1())
    >>> out.T
    array([[0. , 0.5, 1. , 1.5]])
    """
    check_arrays(key_mask, segment_ids, q=q, k=k, v=v)
    check_map(phi, q=q)
    if q.shape[-2] != k.shape[-2]:
        raise ShapeError(
            "causal attention takes as many queries as keys (what came before belongs in `state`); "
            f"got q {tuple(q.shape)} and k {tuple(k.shape)}"
        )
    if state is not None:
        check_state(state, phi, q, lead=leading(2, k=k, v=v), v=v)
    before = None if state is None else _sums(state)
    run = CAUSAL.implementation(v, backend)
    out, after = run(*_lowered(phi, q=q, k=k), v, phi.spec, before, key_mask, segment_ids)
    return out, _state(after, phi.draw)


def linear_attention_step(
    state: LinearState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Array | None = None,
) -> tuple[Array, LinearState]:
    r"""Take one token: :math:`S \leftarrow S + \phi(k) v^T`, :math:`z \leftarrow z + \phi(k)`.

    Its output is :math:`o = \phi(q)^T S / \phi(q)^T z`, the token included.
    Katharopoulos et al. (2020), eqs. 16 to 20: decoding in constant time and memory.

    Parameters
    ----------
    state : LinearState
        The state before the token, as `initial_state`, `key_state` or `causal_linear_attention` return it.
    q : (..., d) array
        Query of the token.
    k : (..., d) array
        Key of the token. Leading axes broadcast against those of q.
    v : (..., e) array
        Value of the token.
    phi : FeatureMap
        The map that made the state.
    key_mask : (...) bool array, optional
        True where there is a key.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.
    reuse_state : bool
        Allow the new state to be written into the arrays of the old one, which must not be used afterwards. By
        default the old state stays as it is.
    out : (..., e) array, optional
        A C-contiguous NumPy or CuPy array of the dtype of v, apart in memory from every other argument: the output is
        written into it, and it is returned. On a GPU, with `reuse_state`, a map that has a spec, C-contiguous
        arrays, and k, v and key_mask of the leading axes of the state, a step allocates nothing on the device and
        waits for nothing once another has run on the same state: a CUDA graph can capture it.

    Returns
    -------
    out : (..., e) array
        Output of the token.
    state : LinearState
        The state after it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi, x = ka.features.elu1(), np.zeros(2)
    >>> state = ka.initial_state(phi, (), value_dim=1, like=x)
    >>> for value in (0.0, 1.0, 5.0):
    ...     out, state = ka.linear_attention_step(state, x, x, np.array([value]), phi)
    >>> out
    array([2.])
    """
    check_step(state, q, k, v, phi, key_mask)
    if out is not None:
        check_out(out, state, q, k, v, key_mask)
    run = STEP.implementation(v, backend)
    out, after = run(_sums(state), *_lowered_token(phi, q, k), v, phi.spec, key_mask, reuse_state, out)
    return out, _state(after, state.draw)


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
    check_arrays(key_mask, k=k, v=v)
    check_map(phi, k=k)
    (keys,) = _lowered(phi, k=k)
    return _state(KEY_STATE.implementation(v, backend)(keys, v, phi.spec, key_mask), phi.draw)


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
    check_arrays(q=q)
    check_map(phi, q=q)
    check_state(state, phi, q)
    leading(2, q=q, state=state.s)
    (queries,) = _lowered(phi, q=q)
    return ATTEND.implementation(q, backend)(_sums(state), queries, phi.spec, q.dtype)


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
        An array of the queries' kind, device, dtype and last axis.

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
    xp = namespace(like=like)
    check_floating("like", like)
    if like.ndim < 1:
        raise ShapeError(f"like must be (..., d); got shape {tuple(like.shape)}")
    check_map(phi, like=like)
    lead = tuple(positive_integer("batch_shape's entry", size) for size in batch_shape)
    e = positive_integer("value_dim", value_dim)
    rows = phi.features_of(like.shape[-1])
    if phi.spec is None:
        peaks = phi.scaled_key(xp.zeros_like(like[..., None, :])).log_scale.shape[-1]
    else:
        peaks = rows if phi.spec.kind in PER_FEATURE else 1
    sums = empty(xp, lead, rows, peaks, e, accumulation_dtype(xp, like), like)
    return _state(sums, phi.draw)


def merge_states(a: LinearState, b: LinearState) -> LinearState:
    r"""Return the state of what either has seen: associative, and an empty state changes nothing.

    :math:`S = S_a + S_b` and :math:`z = z_a + z_b`, in units of the larger of both peaks.

    Parameters
    ----------
    a, b : LinearState
        States of one draw of a map.

    Returns
    -------
    LinearState
        Their sum.

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
    check_is_state(a=a, b=b)
    xp = namespace(a=a.s, b=b.s)
    check_draws(a.draw, b.draw)
    if tuple(a.s.shape) != tuple(b.s.shape) or a.s.dtype != b.s.dtype or tuple(a.peak.shape) != tuple(b.peak.shape):
        raise StateMismatchError(
            f"states to merge must have one shape and dtype; got s {tuple(a.s.shape)} {a.s.dtype} "
            f"and {tuple(b.s.shape)} {b.s.dtype}"
        )
    return _state(merge(xp, _sums(a), _sums(b)), a.draw)


def _sums(state: LinearState) -> PeakedSum:
    return PeakedSum(state.s, state.z, state.peak)


def _state(sums: PeakedSum, draw: int) -> LinearState:
    return LinearState(sums.s, sums.z, sums.peak, draw)


def _lowered(phi: FeatureMap, **arrays: Array) -> list[Array | ScaledFeatures]:
    """Return what the ops take: the arrays themselves beside a spec, else their features."""
    if phi.spec is not None:
        return list(arrays.values())
    return [phi.scaled_query(x) if name == "q" else phi.scaled_key(x) for name, x in arrays.items()]


def _lowered_token(phi: FeatureMap, q: Array, k: Array) -> list[Array | ScaledFeatures]:
    if phi.spec is not None:
        return [q, k]
    both = _lowered(phi, q=q[..., None, :], k=k[..., None, :])
    return [ScaledFeatures(x.values[..., 0, :], x.log_scale[..., 0, :]) for x in both]
