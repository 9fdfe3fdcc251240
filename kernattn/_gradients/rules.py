"""How cotangents flow back through each function: its rule returns what it returns, and the pullback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernattn import attention
from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._gradients import pairs
from kernattn._gradients.maps import MapGradients, checked_map, learnt, map_gradients, spec_of, specs_of
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import shown
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention._check import check_arrays
from kernattn.attention._linear import causal_normalised
from kernattn.attention._softmax import softmax_arguments
from kernattn.attention._states import attend_normalised
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.dispatch import Op

Pullback = Callable[[Any], Any]
Rule = Callable[..., tuple[Any, Pullback]]
"""Takes the names of what is learnt, and the function's arguments; returns its result, and the pullback."""


class LinearGradients(NamedTuple):
    """Of `linear_attention`."""

    q: Array
    k: Array
    v: Array
    phi: MapGradients


class CausalGradients(NamedTuple):
    """Of `causal_linear_attention`."""

    q: Array
    k: Array
    v: Array
    phi: MapGradients
    state: LinearState | None


class KeyStateGradients(NamedTuple):
    """Of `key_state`."""

    k: Array
    v: Array
    phi: MapGradients


class AttendGradients(NamedTuple):
    """Of `attend`."""

    state: LinearState
    q: Array
    phi: MapGradients


class SoftmaxGradients(NamedTuple):
    """Of `softmax_attention` and `softmax_with_lse`."""

    q: Array
    k: Array
    v: Array
    scale: Array
    key_bias: Array | None


class FeatureGradients(NamedTuple):
    """Of a feature map."""

    x: Array
    phi: MapGradients


def _linear(
    learn: Any, q: Array, k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, backend: str | None
) -> tuple[Array, Pullback]:
    names = checked_map(phi, learn)
    check_arrays("qkv", q, k, v, phi=phi, key_mask=key_mask)
    state = attention.key_state(k, v, phi, key_mask=key_mask, backend=backend)
    out, normaliser = attend_normalised(state, q, phi, backend)
    given, kept, way, learn = (q, k, v, key_mask), (PeakedSum(*state[:3]), normaliser), _way(backend), learnt(names)

    def pullback(cotangent: Any) -> LinearGradients:
        g = _like("the cotangent", cotangent, out)
        dq, dk, dv = pairs.linear_attention_vjp(way, specs_of(phi), learn, given, out, kept, g)
        return LinearGradients(dq.x, dk.x, dv, map_gradients(phi, names, (q, dq), (k, dk)))

    return out, pullback


def _causal(
    learn: Any,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    backend: str | None,
) -> tuple[tuple[Array, LinearState], Pullback]:
    names = checked_map(phi, learn)
    out, normaliser, last = causal_normalised(q, k, v, phi, state, key_mask, segment_ids, backend)
    given = q, k, v, None if state is None else PeakedSum(*state[:3]), key_mask, segment_ids
    way, learn = _way(backend), learnt(names)

    def pullback(cotangent: Any) -> CausalGradients:
        g, of_last = _pair(cotangent, "the state")
        g, of_last = _like("the cotangent of the outputs", g, out), _like_state(of_last, last)
        dq, dk, dv, found = pairs.causal_vjp(way, specs_of(phi), learn, given, out, normaliser, g, of_last)
        of_state = None if found is None else _state(found, last)
        return CausalGradients(dq.x, dk.x, dv, map_gradients(phi, names, (q, dq), (k, dk)), of_state)

    return (out, last), pullback


def _key_state(
    learn: Any, k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, backend: str | None
) -> tuple[LinearState, Pullback]:
    names = checked_map(phi, learn)
    state = attention.key_state(k, v, phi, key_mask=key_mask, backend=backend)
    given, way, learn = (k, v, key_mask), _way(backend), learnt(names)

    def pullback(cotangent: Any) -> KeyStateGradients:
        sums = _like_state(cotangent, state)
        if sums is None:
            xp = namespace(s=state.s)
            sums = PeakedSum(xp.zeros_like(state.s), xp.zeros_like(state.z), state.peak)
        dk, dv = pairs.key_state_vjp(way, specs_of(phi), learn, given, sums)
        return KeyStateGradients(dk.x, dv, map_gradients(phi, names, (k, dk)))

    return state, pullback


def _attend(learn: Any, state: LinearState, q: Array, phi: FeatureMap, backend: str | None) -> tuple[Array, Pullback]:
    names = checked_map(phi, learn)
    out, normaliser = attend_normalised(state, q, phi, backend)
    given, way, learn = (PeakedSum(*state[:3]), q), _way(backend), learnt(names)

    def pullback(cotangent: Any) -> AttendGradients:
        g = _like("the cotangent", cotangent, out)
        found, dq = pairs.attend_vjp(way, specs_of(phi), learn, given, out, normaliser, g)
        return AttendGradients(_state(found, state), dq.x, map_gradients(phi, names, (q, dq)))

    return out, pullback


def _softmax(learn: Any, **arguments: Any) -> tuple[Array, Pullback]:
    (out, _), pullback = _softmax_with_lse(learn, **arguments)
    return out, lambda cotangent: pullback((cotangent, None))


def _softmax_with_lse(
    learn: Any,
    q: Array,
    k: Array,
    v: Array,
    scale: float | None,
    causal: bool,
    key_mask: Array | None,
    key_bias: Array | None,
    pattern: Pattern | Plan | None,
    backend: str | None,
) -> tuple[tuple[Array, Array], Pullback]:
    if learn != ():
        raise ParameterError(f"learn must be () for exact attention, which has no map; got {shown(learn)}")
    given = softmax_arguments(q, k, v, scale, causal, key_mask, key_bias, pattern)
    way = _way(backend)
    out, lse = pairs.block_softmax(way, *given)

    def pullback(cotangents: Any) -> SoftmaxGradients:
        g, of_lse = _pair(cotangents, "the log normalisers")
        g = _like("the cotangent of the outputs", g, out)
        of_lse = None if of_lse is None else _like("the cotangent of the log normalisers", of_lse, lse)
        return SoftmaxGradients(*pairs.block_softmax_vjp(way, given, out, lse, g, of_lse))

    return (out, lse), pullback


def of_features(phi: FeatureMap, key: bool) -> Rule:
    """Return the rule of the features of queries, or of keys."""

    def rule(learn: Any, x: Array, backend: str | None) -> tuple[Array, Pullback]:
        names = checked_map(phi, learn)
        out = phi.key(x, backend=backend) if key else phi.query(x, backend=backend)
        spec, way, learn = spec_of(phi, key), _way(backend), learnt(names)

        def pullback(cotangent: Any) -> FeatureGradients:
            g = _like("the cotangent", cotangent, out)
            found = pairs.features_vjp(way, (spec, spec), learn, (x,), g)
            return FeatureGradients(found.x, map_gradients(phi, names, (x, found)))

        return out, pullback

    return rule


RULES: dict[Any, Rule] = {
    attention.linear_attention: _linear,
    attention.causal_linear_attention: _causal,
    attention.key_state: _key_state,
    attention.attend: _attend,
    attention.softmax_attention: _softmax,
    attention.softmax_with_lse: _softmax_with_lse,
}


def _way(backend: str | None) -> pairs.Way:
    """Return the way of a backend, None for the fastest that an array has."""

    def way(op: Op, like: Array) -> Callable[..., Any]:
        return op.implementation(like, backend)

    return way


def _pair(cotangent: Any, second: str) -> tuple[Any, Any]:
    """Return the cotangents of outputs and of what comes with them."""
    if not isinstance(cotangent, tuple) or len(cotangent) != 2:
        raise ParameterError(
            f"the cotangent must be a pair, of the outputs and of {second}, None where there is none; "
            f"got {shown(cotangent)}"
        )
    return cotangent


def _like(what: str, cotangent: Any, result: Array) -> Array:
    """Return a cotangent, zeros where it is None; it must be an array like the result."""
    xp = namespace(result=result)
    if cotangent is None:
        return xp.zeros_like(result)
    namespace(result=result, cotangent=cotangent)
    if tuple(cotangent.shape) != tuple(result.shape):
        raise ShapeError(f"{what} must have the result's shape {tuple(result.shape)}; got {tuple(cotangent.shape)}")
    if dtype_name(cotangent) != dtype_name(result):
        raise DTypeError(f"{what} must have the result's dtype {dtype_name(result)}; got {dtype_name(cotangent)}")
    return cotangent


def _like_state(cotangent: Any, state: LinearState) -> PeakedSum | None:
    """Return the cotangents of a state's sums beside its peak; those of peak and draw are not looked at."""
    if cotangent is None:
        return None
    if not isinstance(cotangent, tuple) or len(cotangent) != len(state):
        raise DTypeError(f"the cotangent of a state must be a LinearState; got {shown(cotangent)}")
    s, z = (_like(f"the state's {name}", x, y) for name, x, y in zip("sz", cotangent[:2], state[:2], strict=True))
    return PeakedSum(s, z, state.peak)


def _state(sums: PeakedSum, like: LinearState) -> LinearState:
    """Return cotangents of sums as those of a state."""
    return LinearState(sums.s, sums.z, sums.peak, like.fingerprint)
