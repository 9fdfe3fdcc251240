"""How cotangents flow back through each function: its rule returns what it returns, and the pullback."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj as is_array

from kernattn import attention
from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._gradients.maps import (
    MapGradients,
    check_differentiable,
    learns,
    map_gradients,
    rows_cotangent,
    sum_products,
)
from kernattn._runtime.checks import shown
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention._check import check_arrays
from kernattn.attention._check_states import linear_state
from kernattn.attention._gated import GatedState, gated_arguments
from kernattn.attention._linear import check_causal
from kernattn.attention._lowering import lowered, state_of, sums_of
from kernattn.attention._softmax import scaled_queries, softmax_arguments
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.dispatch import Op
from kernattn.ops.records import RECORDS

Pullback = Callable[[Any], Any]
Rule = Callable[..., tuple[Any, Pullback]]
"""Takes the function's arguments; returns its result, and the pullback."""


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


class GatedGradients(NamedTuple):
    """Of `gated_linear_attention`."""

    q: Array
    k: Array
    v: Array
    g: Array | None
    gk: Array | None
    beta: Array | None
    erase: tuple[Array, Array] | None
    state: GatedState | None


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


def _recorded(
    name: str, given: tuple[Any, ...], backend: str | None, phi: FeatureMap | None = None
) -> tuple[tuple[Any, ...], Callable[..., dict[str, Any]]]:
    """Return the outputs of an op, and what makes cotangents of its inputs, by name, from those of its outputs."""
    record = RECORDS[name]

    def way(op: Op, like: Array) -> Callable[..., Any]:
        return op.implementation(like, backend)

    outputs = record.forward(way, given)
    kept = record.kept_of(outputs)
    learn = phi is not None and learns(phi)

    def pulled(*cotangents: Any) -> dict[str, Any]:
        found = record.backward(way, learn, given, kept, cotangents)
        names = [each.name for each in record.inputs if each.kind != "map" and each.differentiable]
        return dict(zip(names, found, strict=True))

    return outputs, pulled


def _of_map(phi: FeatureMap, sides: dict[str, Array], pulled: dict[str, Any]) -> dict[str, Any]:
    """Return cotangents of rows that went through a map, by name, and those of the map's numbers."""
    cotangents = {name: pulled[name]._replace(x=rows_cotangent(phi, x, pulled[name].x)) for name, x in sides.items()}
    return {
        **{name: cotangent.x for name, cotangent in cotangents.items()},
        "phi": map_gradients(phi, *((x, cotangents[name]) for name, x in sides.items())),
    }


def _linear(
    q: Array, k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, backend: str | None
) -> tuple[Array, Pullback]:
    check_differentiable(phi)
    check_arrays("qkv", q, k, v, phi=phi, key_mask=key_mask)
    queries, keys, q_spec, k_spec = lowered(phi, q, k)
    (out, *_), pulled = _recorded("linear_attention", (keys, v, k_spec, key_mask, queries, q_spec), backend, phi)

    def pullback(cotangent: Any) -> LinearGradients:
        found = pulled(_like("the cotangent", cotangent, out))
        return LinearGradients(v=found["v"], **_of_map(phi, {"q": q, "k": k}, found))

    return out, pullback


def _causal(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    g: Array | None,
    gk: Array | None,
    backend: str | None,
) -> tuple[tuple[Array, LinearState], Pullback]:
    if g is not None or gk is not None:
        raise ParameterError(
            "g and gk must be None in vjp of causal_linear_attention: PyTorch and JAX differentiate calls with decays, "
            "and vjp those of gated_linear_attention"
        )
    check_differentiable(phi)
    check_causal(q, k, v, phi, state, key_mask, segment_ids)
    queries, keys, q_spec, k_spec = lowered(phi, q, k)
    before = None if state is None else sums_of(state)
    given = queries, keys, v, q_spec, k_spec, before, key_mask, segment_ids
    (out, _, after), pulled = _recorded("causal", given, backend, phi)
    last = state_of(after, phi.fingerprint)

    def pullback(cotangent: Any) -> CausalGradients:
        g, of_last = _pair(cotangent, "the state")
        found = pulled(_like("the cotangent of the outputs", g, out), _like_state(of_last, last))
        of_state = None if found["state"] is None else state_of(found["state"], last.fingerprint)
        return CausalGradients(v=found["v"], state=of_state, **_of_map(phi, {"q": q, "k": k}, found))

    return (out, last), pullback


def _key_state(
    k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, backend: str | None
) -> tuple[LinearState, Pullback]:
    check_differentiable(phi)
    check_arrays("kv", k, v, phi=phi, key_mask=key_mask)
    (sums,), pulled = _recorded("key_state", (phi._rows(k), v, phi.key_spec, key_mask), backend, phi)
    state = state_of(sums, phi.fingerprint)

    def pullback(cotangent: Any) -> KeyStateGradients:
        of_sums = _like_state(cotangent, state)
        if of_sums is None:
            xp = namespace(s=state.s)
            of_sums = PeakedSum(xp.zeros_like(state.s), xp.zeros_like(state.z), state.peak)
        found = pulled(of_sums)
        return KeyStateGradients(v=found["v"], **_of_map(phi, {"k": k}, found))

    return state, pullback


def _attend(state: LinearState, q: Array, phi: FeatureMap, backend: str | None) -> tuple[Array, Pullback]:
    check_differentiable(phi)
    check_arrays("q", q, phi=phi, state=linear_state(state))
    (out, _), pulled = _recorded("attend", (sums_of(state), phi._rows(q), phi.query_spec), backend, phi)

    def pullback(cotangent: Any) -> AttendGradients:
        found = pulled(_like("the cotangent", cotangent, out))
        of_state = state_of(found["state"], state.fingerprint)
        return AttendGradients(state=of_state, **_of_map(phi, {"q": q}, found))

    return out, pullback


def _gated(backend: str | None, **arguments: Any) -> tuple[tuple[Array, GatedState], Pullback]:
    (out, after), pulled = _recorded("gated", gated_arguments(**arguments), backend)

    def pullback(cotangent: Any) -> GatedGradients:
        g, of_after = _pair(cotangent, "the state")
        of_sums = None
        if of_after is not None:
            if not isinstance(of_after, GatedState):
                raise DTypeError(f"the cotangent of a state must be a GatedState; got {shown(of_after)}")
            of_sums = _like("the state's s", of_after.s, after)
        found = pulled(None if g is None else _like("the cotangent of the outputs", g, out), of_sums)
        read, write, state = found.pop("read"), found.pop("write"), found.pop("state")
        for name in ("g", "beta"):  # the op saw them of every token
            if found[name] is not None:
                found[name] = sum_onto(namespace(out=out), found[name], tuple(arguments[name].shape))
        return GatedGradients(
            erase=None if read is None else (read, write), state=None if state is None else GatedState(state), **found
        )

    return (out, GatedState(after)), pullback


def _softmax(**arguments: Any) -> tuple[Array, Pullback]:
    (out, _), pullback = _softmax_with_lse(**arguments)
    return out, lambda cotangent: pullback((cotangent, None))


def _softmax_with_lse(
    q: Array, scale: float | Array | None, backend: str | None, **arguments: Any
) -> tuple[tuple[Array, Array], Pullback]:
    given = softmax_arguments(q, scale=scale, **arguments)
    (out, lse), pulled = _recorded("block_softmax", given, backend)

    def pullback(cotangents: Any) -> SoftmaxGradients:
        g, of_lse = _pair(cotangents, "the log normalisers")
        g = _like("the cotangent of the outputs", g, out)
        of_lse = None if of_lse is None else _like("the cotangent of the log normalisers", of_lse, lse)
        cotangents = pulled(g, of_lse)
        if is_array(scale) and not isinstance(scale, np.generic):  # the op saw the product of both
            of_product = MapCotangent(cotangents["q"])
            cotangents["scale"] = namespace(q=q).sum(sum_products(q, of_product))
            cotangents["q"] = scaled_queries(cotangents["q"], scale)
        return SoftmaxGradients(**cotangents)

    return (out, lse), pullback


def of_features(phi: FeatureMap, key: bool) -> Rule:
    """Return the rule of the features of queries, or of keys."""

    def rule(x: Array, backend: str | None) -> tuple[Array, Pullback]:
        check_differentiable(phi)
        phi._check(x, key=key)
        spec = phi.key_spec if key else phi.query_spec
        (out,), pulled = _recorded("features", (phi._rows(x), spec), backend, phi)

        def pullback(cotangent: Any) -> FeatureGradients:
            found = pulled(_like("the cotangent", cotangent, out))
            return FeatureGradients(**_of_map(phi, {"x": x}, found))

        return out, pullback

    return rule


RULES: dict[Any, Rule] = {
    attention.linear_attention: _linear,
    attention.causal_linear_attention: _causal,
    attention.key_state: _key_state,
    attention.attend: _attend,
    attention.gated_linear_attention: _gated,
    attention.softmax_attention: _softmax,
    attention.softmax_with_lse: _softmax_with_lse,
}


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
