"""How cotangents flow back through each function: its rule returns what it returns, and the pullback."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj as is_array

from kernattn import attention
from kernattn._arrays.namespaces import Array, namespace
from kernattn._gradients.computed import FeatureGradients, computed_features
from kernattn._gradients.hybrid import packed, scatterbrain, window
from kernattn._gradients.maps import MapGradients, check_differentiable, sum_products
from kernattn._gradients.recorded import like, like_state, of_map, pair, run_with_pullback
from kernattn._runtime.checks import boolean, shown
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention import GatedState
from kernattn.attention._check import check_arrays, check_causal, check_token
from kernattn.attention._check_states import linear_state
from kernattn.attention._decayed import check_decays, with_leads
from kernattn.attention._gated import gated_arguments
from kernattn.attention._lowering import lowered, state_of, sums_of
from kernattn.attention._softmax import scaled_queries, softmax_arguments
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap

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
    g: Array | None = None
    gk: Array | None = None


class StepGradients(NamedTuple):
    """Of `linear_attention_step`."""

    state: LinearState
    q: Array
    k: Array
    v: Array
    phi: MapGradients
    g: Array | None = None
    gk: Array | None = None


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
    score_bias: Array | None = None


def _linear(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    key_mask: Array | None,
    segment_ids: Array | None,
    backend: str | None,
) -> tuple[Array, Pullback]:
    if segment_ids is not None:
        out, of_packed = packed(phi, backend, q, k, v, key_mask, segment_ids)
        return out, lambda cotangent: LinearGradients(**of_packed(cotangent))
    check_differentiable(phi)
    check_arrays("qkv", q, k, v, phi=phi, key_mask=key_mask)
    queries, keys, q_spec, k_spec = lowered(phi, q, k)
    (out, *_), pulled = run_with_pullback(
        "linear_attention", (keys, v, k_spec, key_mask, queries, q_spec), backend, phi
    )

    def pullback(cotangent: Any) -> LinearGradients:
        grads = pulled(like("the cotangent", cotangent, out))
        return LinearGradients(v=grads["v"], **of_map(phi, {"q": q, "k": k}, grads))

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
    check_differentiable(phi)
    fades = g is not None or gk is not None
    check_causal(q, k, v, phi, None if fades else state, key_mask, segment_ids)
    if fades:
        check_decays(q, k, v, phi, g, gk, state)
    queries, keys, q_spec, k_spec = lowered(phi, q, k)
    before = None if state is None else sums_of(state)
    given = queries, keys, v, q_spec, k_spec, before, key_mask, segment_ids
    name, logs = ("decayed", (g, gk)) if fades else ("causal", ())
    (out, _, after, *_), pulled = run_with_pullback(name, (*given, *logs), backend, phi)
    last = state_of(after, phi.fingerprint)

    def pullback(cotangent: Any) -> CausalGradients:
        of_out, of_last = pair(cotangent, "the state")
        grads = pulled(like("the cotangent of the outputs", of_out, out), like_state(of_last, last))
        of_state = None if grads["state"] is None else state_of(grads["state"], last.fingerprint)
        of_rows = of_map(phi, {"q": q, "k": k}, grads)
        return CausalGradients(v=grads["v"], state=of_state, g=grads.get("g"), gk=grads.get("gk"), **of_rows)

    return (out, last), pullback


def _step(
    state: LinearState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    key_mask: Array | None,
    g: Array | None,
    gk: Array | None,
    backend: str | None,
    reuse_state: bool,
    out: Array | None,
) -> tuple[tuple[Array, LinearState], Pullback]:
    """A step is a sequence of one token."""
    if out is not None or boolean("reuse_state", reuse_state):
        raise ParameterError("out must be None and reuse_state False in vjp: the pullback reads what was given")
    check_differentiable(phi)
    check_token(linear_state(state), q, k if g is None and gk is None else with_leads(k, g, gk), v, phi, key_mask)
    mask, of_all, of_each = key_mask, g, gk
    if mask is not None:
        mask = mask[..., None]
    if of_all is not None:
        of_all = of_all[..., None]
    if of_each is not None:
        of_each = of_each[..., None, :]
    rows = q[..., None, :], k[..., None, :], v[..., None, :]
    (token, after), whole = _causal(*rows, phi, state, mask, None, of_all, of_each, backend)

    def pullback(cotangent: Any) -> StepGradients:
        of_token, of_after = pair(cotangent, "the state")
        of_token = None if of_token is None else like("the cotangent of the output", of_token, token[..., 0, :])
        grads = whole((None if of_token is None else of_token[..., None, :], of_after))._asdict()
        for name in ("q", "k", "v", "gk"):
            grads[name] = None if grads[name] is None else grads[name][..., 0, :]
        grads["g"] = None if grads["g"] is None else grads["g"][..., 0]
        return StepGradients(**grads)

    return (token[..., 0, :], after), pullback


def _key_state(
    k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, backend: str | None
) -> tuple[LinearState, Pullback]:
    check_differentiable(phi)
    check_arrays("kv", k, v, phi=phi, key_mask=key_mask)
    (sums,), pulled = run_with_pullback("key_state", (phi._rows(k), v, phi.key_spec, key_mask), backend, phi)
    state = state_of(sums, phi.fingerprint)

    def pullback(cotangent: Any) -> KeyStateGradients:
        of_sums = like_state(cotangent, state)
        if of_sums is None:
            xp = namespace(s=state.s)
            of_sums = PeakedSum(xp.zeros_like(state.s), xp.zeros_like(state.z), state.peak)
        grads = pulled(of_sums)
        return KeyStateGradients(v=grads["v"], **of_map(phi, {"k": k}, grads))

    return state, pullback


def _attend(state: LinearState, q: Array, phi: FeatureMap, backend: str | None) -> tuple[Array, Pullback]:
    check_differentiable(phi)
    check_arrays("q", q, phi=phi, state=linear_state(state))
    (out, _), pulled = run_with_pullback("attend", (sums_of(state), phi._rows(q), phi.query_spec), backend, phi)

    def pullback(cotangent: Any) -> AttendGradients:
        grads = pulled(like("the cotangent", cotangent, out))
        of_state = state_of(grads["state"], state.fingerprint)
        return AttendGradients(state=of_state, **of_map(phi, {"q": q}, grads))

    return out, pullback


def _gated(backend: str | None, **arguments: Any) -> tuple[tuple[Array, GatedState], Pullback]:
    (out, after), pulled = run_with_pullback("gated", gated_arguments(**arguments), backend)

    def pullback(cotangent: Any) -> GatedGradients:
        g, of_after = pair(cotangent, "the state")
        of_sums = None
        if of_after is not None:
            if not isinstance(of_after, GatedState):
                raise DTypeError(f"the cotangent of a state must be a GatedState; got {shown(of_after)}")
            of_sums = like("the state's s", of_after.s, after)
        grads = pulled(None if g is None else like("the cotangent of the outputs", g, out), of_sums)
        read, write, state = grads.pop("read"), grads.pop("write"), grads.pop("state")
        for name in ("g", "beta"):  # the op saw them of every token
            if grads[name] is not None:
                grads[name] = sum_onto(namespace(out=out), grads[name], tuple(arguments[name].shape))
        return GatedGradients(
            erase=None if read is None else (read, write), state=None if state is None else GatedState(state), **grads
        )

    return (out, GatedState(after)), pullback


def _softmax(**arguments: Any) -> tuple[Array, Pullback]:
    (out, _), pullback = _softmax_with_lse(**arguments)
    return out, lambda cotangent: pullback((cotangent, None))


def _softmax_with_lse(
    q: Array, scale: float | Array | None, backend: str | None, **arguments: Any
) -> tuple[tuple[Array, Array], Pullback]:
    given = softmax_arguments(q, scale=scale, **arguments)
    (out, lse, _), pulled = run_with_pullback("block_softmax", given, backend)

    def pullback(cotangents: Any) -> SoftmaxGradients:
        g, of_lse = pair(cotangents, "the log normalisers")
        g = like("the cotangent of the outputs", g, out)
        of_lse = None if of_lse is None else like("the cotangent of the log normalisers", of_lse, lse)
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
        spec = phi.key_spec if key else phi.query_spec
        if spec is None:
            return computed_features(phi, x, key, backend)
        check_differentiable(phi)
        phi._check(x, key=key)
        (out,), pulled = run_with_pullback("features", (phi._rows(x), spec), backend, phi)

        def pullback(cotangent: Any) -> FeatureGradients:
            grads = pulled(like("the cotangent", cotangent, out))
            return FeatureGradients(**of_map(phi, {"x": x}, grads))

        return out, pullback

    return rule


RULES: dict[Any, Rule] = {
    attention.linear_attention: _linear,
    attention.causal_linear_attention: _causal,
    attention.linear_attention_step: _step,
    attention.key_state: _key_state,
    attention.attend: _attend,
    attention.gated_linear_attention: _gated,
    attention.softmax_attention: _softmax,
    attention.softmax_with_lse: _softmax_with_lse,
    attention.scatterbrain_attention: scatterbrain,
    attention.window_attention: window,
}
