"""States on arrays of JAX: keys and values summarised, read, and continued token by token."""

from __future__ import annotations

from jax import tree_util

from kernattn import attention
from kernattn._arrays.namespaces import Array
from kernattn._sums.peaked import LinearState
from kernattn.attention._check import check_arrays, check_token, feature_map
from kernattn.attention._check_states import linear_state
from kernattn.attention._lowering import sums_of
from kernattn.features import FeatureMap
from kernattn.jax._attention import Learnt
from kernattn.jax._calls import differentiable
from kernattn.jax._frames import in_frames
from kernattn.jax._front import check_jax, compiles, leading, levelled, shaped, specs_of
from kernattn.jax._numbers import numbers_of
from kernattn.jax._rules import Attend, KeyState, Step


def _made(fingerprint: int, arrays: tuple[Array, Array, Array]) -> LinearState:
    s, z, peak = arrays
    return LinearState(s, z, peak, fingerprint)


NAMES = tuple(map(tree_util.GetAttrKey, LinearState._fields[:3]))

tree_util.register_pytree_with_keys(  # the draw is no array: it is compared where JAX traces, too
    LinearState,
    lambda state: (tuple(zip(NAMES, state[:3], strict=True)), state.fingerprint),
    _made,
    lambda state: (state[:3], state.fingerprint),
)


def key_state(
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    learn: Learnt = None,
    backend: str | None = None,
) -> LinearState:
    r"""Return the state of keys and values, :math:`S = \sum_j \phi(k_j) v_j^T` and :math:`z = \sum_j \phi(k_j)`.

    `kernattn.key_state`, compiled also where JAX traces, maps or differentiates.

    Parameters
    ----------
    k : (..., n, d) array
        Keys.
    v : (..., n, e) array
        Values.
    phi : FeatureMap
        The feature map. One without a spec runs on the reference.
    key_mask : (..., n) bool array, optional
        True where there is a key.
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name, as in `linear_attention`. The state is read with the same.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    LinearState
        The state. No gradient passes through its peak, on which nothing that is read depends.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit; BackendUnavailable also for a second derivative of what is
        compiled.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import kernattn as ka
    >>> import kernattn.jax
    >>> kernattn.jax.key_state(jnp.zeros((3, 2)), jnp.ones((3, 1)), ka.features.elu1()).z
    Array([3., 3.], dtype=float32)
    """
    check_jax(k=k, v=v, key_mask=key_mask)
    check_arrays("kv", k, v, phi=feature_map(phi), key_mask=key_mask)
    numbers = numbers_of(phi, learn)
    k = numbers.scaled(phi, k)
    if not compiles(backend, phi, k, v, key_mask, numbers.values):
        return attention.key_state(k, v, numbers.traced(phi), key_mask=key_mask, backend="reference")
    rule, lead = KeyState(*specs_of(phi), numbers.names), leading(2, k, v)
    sums = differentiable(rule, *levelled((k, 2), (v, 2), (key_mask, 1)), numbers.values)
    return LinearState(*shaped(sums, lead), phi.fingerprint)


def attend(state: LinearState, q: Array, phi: FeatureMap, *, learn: Learnt = None, backend: str | None = None) -> Array:
    r"""Return :math:`o_i = \phi(q_i)^T S / \phi(q_i)^T z` for queries against a state.

    `kernattn.attend`, compiled also where JAX traces, maps or differentiates.

    Parameters
    ----------
    state : LinearState
        What `key_state` made of the keys and values.
    q : (..., n, d) array
        Queries. Leading axes broadcast against those of the state.
    phi : FeatureMap
        The map that made the state.
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name, as in `linear_attention`: those that made the state.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    (..., n, e) array
        Outputs, of the dtype of q.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit; BackendUnavailable also for a second derivative of what is
        compiled.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import kernattn as ka
    >>> import kernattn.jax
    >>> phi = ka.features.elu1()
    >>> state = kernattn.jax.key_state(jnp.zeros((3, 2)), jnp.array([[1.0], [2.0], [6.0]]), phi)
    >>> kernattn.jax.attend(state, jnp.zeros((1, 2)), phi)
    Array([[3.]], dtype=float32)
    """
    check_jax(q=q, **{"state.s": linear_state(state).s})
    check_arrays("q", q, phi=feature_map(phi), state=state)
    numbers = numbers_of(phi, learn)
    q = numbers.scaled(phi, q)
    if not compiles(backend, phi, state[:3], q, numbers.values):
        return attention.attend(state, q, numbers.traced(phi), backend="reference")
    rule = Attend(*specs_of(phi), numbers.names)
    s, q = levelled((state.s, 2), (q, 2))
    return differentiable(rule, shaped(sums_of(state), s.shape[:-2]), q, numbers.values)


def linear_attention_step(
    state: LinearState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    learn: Learnt = None,
    backend: str | None = None,
) -> tuple[Array, LinearState]:
    r"""Take one token: :math:`S \leftarrow S + \phi(k) v^T`, :math:`z \leftarrow z + \phi(k)`.

    Its output is :math:`o = \phi(q)^T S / \phi(q)^T z`, the token included: `kernattn.linear_attention_step`, compiled
    also where JAX traces, maps or differentiates. Where it is traced, XLA calls the loop itself, without Python.

    Parameters
    ----------
    state : LinearState
        The state before the token.
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
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name, as in `linear_attention`: those that made the state.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    out : (..., e) array
        Output of the token.
    state : LinearState
        The state after it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit; BackendUnavailable also for a second derivative of what is
        compiled.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import kernattn as ka
    >>> import kernattn.jax
    >>> phi, x = ka.features.elu1(), jnp.zeros(2)
    >>> def take(state, value):
    ...     out, state = kernattn.jax.linear_attention_step(state, x, x, value, phi)
    ...     return state, out
    >>> state = ka.initial_state(phi, (), value_dim=1, like=x)
    >>> jax.lax.scan(take, state, jnp.array([[0.0], [1.0], [5.0]]))[1].T
    Array([[0. , 0.5, 2. ]], dtype=float32)
    """
    check_jax(q=q, k=k, v=v, key_mask=key_mask, **{"state.s": linear_state(state).s})
    check_token(state, q, k, v, feature_map(phi), key_mask)
    numbers = numbers_of(phi, learn)
    q, k = (numbers.scaled(phi, x) for x in (q, k))
    if not compiles(backend, phi, state[:3], q, k, v, key_mask, numbers.values):
        return attention.linear_attention_step(
            state, q, k, v, numbers.traced(phi), key_mask=key_mask, backend="reference"
        )
    specs = specs_of(phi)
    rule = Step(*specs, numbers.names, in_frames(*specs, numbers.names))
    lead = leading(1, k, v)
    q, k, v, mask = levelled((q, 1), (k, 1), (v, 1), (key_mask, 0))
    before = shaped(sums_of(state), (1,) * (q.ndim - 1 - len(lead)) + lead)
    out, after = differentiable(rule, before, q, k, v, mask, numbers.values)
    return out, LinearState(*shaped(after, lead), phi.fingerprint)
