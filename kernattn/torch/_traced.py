"""The functions of attention where `torch.compile` traces them: each is an op of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame

from kernattn import attention
from kernattn._arrays.graphs import NAMESAKES
from kernattn._plans.plan import CAUSAL
from kernattn.attention import LinearState
from kernattn.errors import StateMismatchError
from kernattn.features import FeatureMap
from kernattn.torch._maps import TensorMap, numbers_of_spec
from kernattn.torch._plans import plan_of
from kernattn.torch._specs import NUMBERS, map_of

OPS = torch.ops.kernattn


def _told(phi: FeatureMap) -> tuple[Any, ...]:
    """Return the numbers of a map that are tensors, and the names of its specs, None where features are computed."""
    base, numbers = phi, {}
    if isinstance(phi, TensorMap):
        base, numbers = phi.base, numbers_of_spec(phi)
    base._named()
    omega, offset, row_weights = [numbers.get(name) for name in NUMBERS]
    return omega, offset, row_weights, *base._content


def _traced_below(
    name: str, draw: str, plan: str, numbers: dict[str, Tensor], given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return what a function of the core makes of tensors, with a map or a plan of these names, traced below it.

    States come and go as plain tuples of their sums: the compiler takes no named ones here.
    """
    phi = None if draw == "" else map_of(draw)
    if numbers and phi is not None:
        phi = TensorMap(phi, numbers)
    if name in ("query", "key"):
        return getattr(phi, name)(*given, **options)
    maps = () if phi is None else (phi,)
    given = tuple(_state(phi, x) if isinstance(x, tuple) else x for x in given)
    if "state" in options:
        options = options | {"state": _state(phi, options["state"])}
    if plan != "":
        found = plan_of(plan)
        options = options | ({"pattern": found} if found.kind == "parts" else {"causal": found is CAUSAL})
    return _plain(getattr(attention, name)(*given, *maps, **options))


def _one_draw(made_by: int, used_by: int) -> None:
    """Raise where a state of one draw meets another draw; without `fullgraph` the core then says which they are."""
    if made_by != used_by:
        raise StateMismatchError("the state was made by another map than phi: they must come from one draw")


def _state(phi: Any, sums: tuple[Tensor, ...]) -> LinearState:
    s, z, peak = sums
    return LinearState(s, z, peak, phi.fingerprint)


def _plain(result: Any) -> Any:
    if isinstance(result, LinearState):
        return tuple(result[:3])
    return tuple(map(_plain, result)) if isinstance(result, tuple) else result


_by_array_operations = torch._dynamo.nonstrict_trace(_traced_below)


def _composed(name: str, phi: FeatureMap | None, *given: Any, plan: str = "", **options: Any) -> Any:
    draw: str | None = ""
    numbers: dict[str, Tensor] = {}
    if phi is not None:
        base, numbers = (phi.base, phi.numbers) if isinstance(phi, TensorMap) else (phi, {})
        base._named()
        draw = base._content[2]
    told = {name: value for name, value in options.items() if value is not None}  # such a call takes no None
    return _by_array_operations(name, draw, plan, numbers, given, told)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Tensor:
    *numbers, q_spec, k_spec, _ = _told(phi)
    if backend == "reference" or q_spec is None or k_spec is None:
        return _composed("linear_attention", phi, q, k, v, key_mask=key_mask, backend=backend)
    return OPS.linear_attention(q, k, v, key_mask, *numbers, q_spec, k_spec, backend)[0]


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    backend: str | None = None,
) -> Any:
    *numbers, q_spec, k_spec, _ = _told(phi)
    before = None, None, None
    if state is not None:
        _one_draw(state.fingerprint, phi.fingerprint)
        before = state.s, state.z, state.peak
    if backend == "reference" or q_spec is None or k_spec is None:
        options: dict[str, Any] = {"key_mask": key_mask, "segment_ids": segment_ids, "backend": backend}
        if state is not None:
            options["state"] = before
        out, sums = _composed("causal_linear_attention", phi, q, k, v, **options)
        return out, _state(phi, sums)
    out, _, _, s, z, peak = OPS.causal(q, k, v, *before, key_mask, segment_ids, *numbers, q_spec, k_spec, backend)
    return out, _state(phi, (s, z, peak))


def key_state(
    k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Any:
    *numbers, _, k_spec, _ = _told(phi)
    if backend == "reference" or k_spec is None:
        return _state(phi, _composed("key_state", phi, k, v, key_mask=key_mask, backend=backend))
    s, z, peak = OPS.key_state(k, v, key_mask, *numbers, k_spec, backend)
    return _state(phi, (s, z, peak))


def attend(state: LinearState, q: Tensor, phi: FeatureMap, *, backend: str | None = None) -> Tensor:
    *numbers, q_spec, _, _ = _told(phi)
    _one_draw(state.fingerprint, phi.fingerprint)
    if backend == "reference" or q_spec is None:
        return _composed("attend", phi, (state.s, state.z, state.peak), q, backend=backend)
    return OPS.attend(state.s, state.z, state.peak, q, *numbers, q_spec, backend)[0]


def linear_attention_step(
    state: LinearState,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    key_mask: Tensor | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Tensor | None = None,
) -> Any:
    *numbers, q_spec, k_spec, _ = _told(phi)
    _one_draw(state.fingerprint, phi.fingerprint)
    if backend == "reference" or q_spec is None or k_spec is None:
        options: dict[str, Any] = {"key_mask": key_mask, "backend": backend}
        found, sums = _composed("linear_attention_step", phi, (state.s, state.z, state.peak), q, k, v, **options)
        after = _state(phi, sums)
    elif torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *state[:3])):
        mask = None if key_mask is None else key_mask[..., None]
        q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
        found, after = causal_linear_attention(q, k, v, phi, state=state, key_mask=mask, backend=backend)
        found = found[..., 0, :]
    elif reuse_state:
        found = OPS.step_(*state[:3], q, k, v, key_mask, *numbers, q_spec, k_spec, backend)
        after = state
    else:
        found, s, z, peak = OPS.step(*state[:3], q, k, v, key_mask, *numbers, q_spec, k_spec, backend)
        after = LinearState(s, z, peak, state.fingerprint)
    return (found if out is None else out.copy_(found)), after


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pattern: Any = None,
    backend: str | None = None,
) -> Tensor:
    return softmax_with_lse(
        q, k, v, scale=scale, causal=causal, key_mask=key_mask, key_bias=key_bias, pattern=pattern, backend=backend
    )[0]


def softmax_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pattern: Any = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    plan = "causal" if causal else "all"
    if pattern is not None:
        plan = "" + pattern._named(q.shape[-2], k.shape[-2], causal)  # a constant that no guard asks for
    if backend == "reference":
        options = {"scale": scale, "key_mask": key_mask, "key_bias": key_bias, "backend": backend}
        out, lse = _composed("softmax_with_lse", None, q, k, v, plan=plan, **options)
    else:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        out, lse = OPS.block_softmax(q, k, v, key_mask, key_bias, scale, plan, backend)
    return out, lse


def compressed_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    return _composed("compressed_attention", None, q, k, v, **options)


def linformer_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, **options: Any) -> Any:
    return _composed("linformer_attention", None, q, k, v, e, f, **options)


def nystrom_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    return _composed("nystrom_attention", None, q, k, v, **options)


def scatterbrain_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, pattern: Any, *, causal: bool = False, **options: Any
) -> Any:
    plan = "" + pattern._named(q.shape[-2], k.shape[-2], causal)
    return _composed("scatterbrain_attention", phi, q, k, v, plan=plan, causal=causal, **options)


def _left_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let graphs break before a function that decides on the host, and trace nothing of what it calls."""
    strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def left_out(*given: Any, **options: Any) -> Any:
        return function(*given, **options)

    return left_out  # type: ignore[no-any-return]


def query(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("query", 0, phi, x, backend)


def key(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("key", 1, phi, x, backend)


def _features(name: str, side: int, phi: FeatureMap, x: Tensor, backend: str | None) -> Tensor:
    *numbers, q_spec, k_spec, _ = _told(phi)
    spec = k_spec if side else q_spec
    if backend == "reference" or spec is None:
        return _composed(name, phi, x, backend=backend)
    return OPS.features(x, *numbers, spec, backend)


NAMESAKES.update(
    attend=attend,
    causal_linear_attention=causal_linear_attention,
    compressed_attention=compressed_attention,
    kernel_attention=_left_out(attention.kernel_attention),
    key=key,
    key_state=key_state,
    linear_attention=linear_attention,
    linear_attention_step=linear_attention_step,
    lsh_attention=_left_out(attention.lsh_attention),
    linformer_attention=linformer_attention,
    nystrom_attention=nystrom_attention,
    query=query,
    routing_attention=_left_out(attention.routing_attention),
    scatterbrain_attention=scatterbrain_attention,
    softmax_attention=softmax_attention,
    softmax_with_lse=softmax_with_lse,
)
