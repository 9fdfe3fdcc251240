"""Attention of whole sequences, and features, on arrays of JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from kernattn import attention
from kernattn._arrays.namespaces import Array
from kernattn._plans.plan import ALL, CAUSAL, Plan
from kernattn._runtime.checks import boolean, finite_number
from kernattn._sums.peaked import LinearState
from kernattn.attention._check import check_arrays, feature_map
from kernattn.attention._check_states import linear_state
from kernattn.attention._lowering import sums_of
from kernattn.attention._softmax import plan_of
from kernattn.attention.patterns import Pattern
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap
from kernattn.jax._calls import differentiable
from kernattn.jax._front import check_jax, compiles, leading, levelled, shaped, specs_of
from kernattn.jax._numbers import numbers_of
from kernattn.jax._rules import Causal, Features, Linear, Softmax

Learnt = Mapping[str, Array] | None


def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    learn: Learnt = None,
    backend: str | None = None,
) -> Array:
    r"""Return :math:`o_i = \phi(q_i)^T \sum_j \phi(k_j) v_j^T \,/\, \phi(q_i)^T \sum_j \phi(k_j)`.

    `kernattn.linear_attention`, compiled also where JAX traces, maps or differentiates.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., l, d) array
        Keys. Leading axes broadcast against those of q.
    v : (..., l, e) array
        Values.
    phi : FeatureMap
        The feature map. One without a spec runs on the reference.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name: "omega", "offset" or "row_weights" in place of those of
        `phi.spec`, and "lengthscale", or "scale", in place of the kernel's with all that was drawn held.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    (..., n, e) array
        Outputs, of the dtype of the inputs. A row whose normaliser is exactly 0 is 0.

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
    >>> q, k, v = jnp.zeros((1, 2)), jnp.ones((4, 2)), jnp.arange(4.0)[:, None]
    >>> kernattn.jax.linear_attention(q, k, v, ka.features.elu1())
    Array([[1.5]], dtype=float32)
    """
    check_jax(q=q, k=k, v=v, key_mask=key_mask)
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask)
    numbers = numbers_of(phi, learn)
    q, k = (numbers.scaled(phi, x) for x in (q, k))
    if not compiles(backend, phi, q, k, v, key_mask, numbers.values):
        return attention.linear_attention(q, k, v, numbers.traced(phi), key_mask=key_mask, backend="reference")
    rule = Linear(*specs_of(phi), numbers.names)
    return differentiable(rule, *levelled((q, 2), (k, 2), (v, 2), (key_mask, 1)), numbers.values)


def causal_linear_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    learn: Learnt = None,
    backend: str | None = None,
) -> tuple[Array, LinearState]:
    r"""Return :math:`o_i = \phi(q_i)^T S_i / \phi(q_i)^T z_i` and the last state.

    :math:`S_i = \sum_{j \le i} \phi(k_j) v_j^T` and :math:`z_i = \sum_{j \le i} \phi(k_j)`:
    `kernattn.causal_linear_attention`, compiled also where JAX traces, maps or differentiates.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., n, d) array
        Keys. Leading axes broadcast against those of q.
    v : (..., n, e) array
        Values.
    phi : FeatureMap
        The feature map. One without a spec runs on the reference.
    state : LinearState, optional
        The state of what came before, of leading axes those of k and v together.
    key_mask : (..., n) bool array, optional
        True where there is a key; a masked token is still a query.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other. The incoming state is
        the history of the first segment; the one returned belongs to the last.
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name, as in `linear_attention`.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the dtype of the inputs. A row whose normaliser is exactly 0 is 0.
    state : LinearState
        The state after the last token. No gradient passes through its peak, on which nothing that is read depends.

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
    >>> q, k, v = jnp.zeros((4, 2)), jnp.ones((4, 2)), jnp.arange(4.0)[:, None]
    >>> out, state = kernattn.jax.causal_linear_attention(q, k, v, ka.features.elu1())
    >>> out.T
    Array([[0. , 0.5, 1. , 1.5]], dtype=float32)
    """
    check_jax(q=q, k=k, v=v, key_mask=key_mask, segment_ids=segment_ids)
    if state is not None:
        check_jax(**{"state.s": linear_state(state).s})
    check_arrays("qkv", q, k, v, phi=feature_map(phi), state=state, key_mask=key_mask, segment_ids=segment_ids)
    if q.shape[-2] != k.shape[-2]:
        raise ShapeError(
            "causal attention takes as many queries as keys (what came before belongs in `state`); "
            f"got q {tuple(q.shape)} and k {tuple(k.shape)}"
        )
    numbers = numbers_of(phi, learn)
    q, k = (numbers.scaled(phi, x) for x in (q, k))
    sums = None if state is None else sums_of(state)
    if not compiles(backend, phi, q, k, v, sums, key_mask, segment_ids, numbers.values):
        return attention.causal_linear_attention(
            q, k, v, numbers.traced(phi),
            state=state, key_mask=key_mask, segment_ids=segment_ids, backend="reference",
        )  # fmt: skip
    rule = Causal(*specs_of(phi), numbers.names)
    lead = leading(2, k, v)
    q, k, v, mask, ids = levelled((q, 2), (k, 2), (v, 2), (key_mask, 1), (segment_ids, 1))
    before = None if sums is None else shaped(sums, (1,) * (q.ndim - 2 - len(lead)) + lead)
    out, after = differentiable(rule, q, k, v, before, mask, ids, numbers.values)
    return out, LinearState(*shaped(after, lead), phi.fingerprint)


def softmax_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | Array | None = None,
    causal: bool = False,
    key_mask: Array | None = None,
    key_bias: Array | None = None,
    pattern: Pattern | Plan | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return exact attention, :math:`o_i = \sum_j e^{s q_i^T k_j + b_j} v_j / \sum_j e^{s q_i^T k_j + b_j}`.

    `kernattn.softmax_attention`, compiled also where JAX traces, maps or differentiates.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., l, d) array
        Keys. Leading axes broadcast against those of q.
    v : (..., l, e) array
        Values.
    scale : float or () array, optional
        The factor s; :math:`d^{-1/2}` by default. An array of JAX can be learnt.
    causal : bool
        Whether a query sees only what stands at or before it. The queries are the last n of the l positions.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    key_bias : (..., l) array, optional
        What is added to all scores of a key, :math:`b_j`, of the dtype of q; -inf hides it.
    pattern : Pattern or Plan, optional
        Which keys a row sees: one of `kernattn.patterns`, or the plan that one makes for these lengths.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    (..., n, e) array
        Outputs, of the dtype of the inputs. A row that sees no key is 0.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit; BackendUnavailable also for a second derivative of what is
        compiled.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import kernattn.jax
    >>> q, k, v = jnp.zeros((1, 2)), jnp.ones((4, 2)), jnp.arange(4.0)[:, None]
    >>> kernattn.jax.softmax_attention(q, k, v)
    Array([[1.5]], dtype=float32)
    """
    check_jax(q=q, k=k, v=v, key_mask=key_mask, key_bias=key_bias)
    check_arrays("qkv", q, k, v, key_mask=key_mask, key_bias=key_bias)
    own = scale if isinstance(scale, jax.Array) else None
    if own is not None and own.shape != ():
        raise ShapeError(f"scale must be a number, or an array of shape (); got shape {tuple(own.shape)}")
    number = None if own is not None else q.shape[-1] ** -0.5 if scale is None else finite_number("scale", scale)
    plan = CAUSAL if boolean("causal", causal) else ALL
    if pattern is not None:
        plan = plan_of(pattern, q, k, v, causal)
    if not compiles(backend, None, q, k, v, key_mask, key_bias, own):
        rows, number = (q, number) if own is None else ((q * own).astype(q.dtype), 1.0)
        options: dict[str, Any] = {"key_mask": key_mask, "key_bias": key_bias, "pattern": pattern}
        options["backend"] = "reference"
        return attention.softmax_attention(rows, k, v, scale=number, causal=causal, **options)
    return differentiable(Softmax(plan, number), *levelled((q, 2), (k, 2), (v, 2), (key_mask, 1), (key_bias, 1)), own)


def features(
    x: Array, phi: FeatureMap, *, keys: bool = False, learn: Learnt = None, backend: str | None = None
) -> Array:
    r"""Return the features :math:`\phi(x_i)` of rows, as `phi(x)` does: compiled also where JAX traces them.

    Parameters
    ----------
    x : (..., n, d) array
        Rows, of dtype float16, bfloat16, float32 or float64.
    phi : FeatureMap
        The feature map. One without a spec runs on the reference.
    keys : bool
        Whether the rows are keys, as in `phi.key(x)`, where a map has another side for them.
    learn : mapping of str to array, optional
        Numbers of the map that are arrays of JAX, by name, as in `linear_attention`.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the compiled one where it can.

    Returns
    -------
    (..., n, M) array
        Features, of the dtype of x.

    Raises
    ------
    ShapeError, DTypeError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit; BackendUnavailable also for a second derivative of what is
        compiled.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import kernattn as ka
    >>> import kernattn.jax
    >>> kernattn.jax.features(jnp.zeros((1, 2)), ka.features.elu1())
    Array([[1., 1.]], dtype=float32)
    """
    check_jax(x=x)
    feature_map(phi)._check(x, key=boolean("keys", keys))
    numbers = numbers_of(phi, learn)
    x = numbers.scaled(phi, x)
    if not compiles(backend, phi, x, numbers.values):
        traced = numbers.traced(phi)
        run: Any = traced.key if keys else traced.query
        return run(x, backend="reference")
    spec = specs_of(phi)[keys]
    return differentiable(Features(spec, spec, numbers.names), x, numbers.values)
