"""The functions of attention where `torch.compile` traces them: each is an op of the graph."""

from typing import Any

import torch
from torch import Tensor

from kernattn._runtime.checks import boolean
from kernattn.attention import LinearState, WindowState
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import number_shapes
from kernattn.torch._in_graphs import OPS, autocast, check_gates, differentiated_by_func, into, sums_dtype
from kernattn.torch._traced_below import admit_drawn, leaves_of, one_draw, plan_name, run_op, state_of, trace_composed
from kernattn.torch._traced_compressed import compress_and_attend
from kernattn.torch._traced_gated import (  # noqa: F401 (namesakes, too)
    gated_linear_attention,
    gated_linear_attention_step,
    gated_state,
    member,
    merge_gated,
)
from kernattn.torch._traced_outside import (  # noqa: F401 (namesakes)
    kernel_attention,
    log_evidence,
    lsh_attention,
    predict,
    random_features,
    routing_attention,
)
from kernattn.torch._traced_states import (  # noqa: F401 (namesakes)
    attend,
    attend_with_lse,
    causal_with_lse,
    initial_state,
    initial_window_state,
    key_state,
    merge_states,
)


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    q, k, v = autocast(q, k, v)
    if segment_ids is not None:
        options = {"key_mask": key_mask, "segment_ids": segment_ids, "backend": backend}
        return trace_composed("linear_attention", phi, q, k, v, **options)
    made = run_op("linear_attention", False, phi, backend, {"q": q, "k": k, "v": v, "key_mask": key_mask})
    if made is None:
        return trace_composed("linear_attention", phi, q, k, v, key_mask=key_mask, backend=backend)
    return made[0]


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    backend: str | None = None,
) -> Any:
    q, k, v = autocast(q, k, v)
    rows = {"key_mask": key_mask, "segment_ids": segment_ids}
    given = {"q": q, "k": k, "v": v, **rows}
    if state is not None:
        one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
        given |= leaves_of(state)
    if g is not None or gk is not None:
        check_gates(q, {"g": g, "gk": gk})
        logs = {"g": None if g is None else g.expand(*g.shape[:-1], q.shape[-2]), "gk": gk}
        made = run_op("decayed", False, phi, backend, given | logs)
    else:
        made = run_op("causal", False, phi, backend, given)
    if made is None:
        options: dict[str, Any] = rows | {"g": g, "gk": gk, "backend": backend}
        if state is not None:
            options["state"] = state.s, state.z, state.peak
        out, sums = trace_composed("causal_linear_attention", phi, q, k, v, **options)
        return out, state_of(admit_drawn(phi), sums)
    return made[0], state_of(admit_drawn(phi), (made[3], made[4], made[5]))


def linear_attention_step(
    state: LinearState,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    key_mask: Tensor | None = None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Tensor | None = None,
) -> Any:
    one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
    q, k, v = autocast(q, k, v)
    given = {"q": q, "k": k, "v": v, "key_mask": key_mask, **leaves_of(state)}
    numbers, fades = phi.numbers.values() if isinstance(phi, LearntMap) else (), g is not None or gk is not None
    watched = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *state[:3], *numbers))
    if fades or watched or torch._C._are_functorch_transforms_active():  # of a batch nothing tells whether it is
        mask, g = (None if x is None else x[..., None] for x in (key_mask, g))
        gk = None if gk is None else gk[..., None, :]
        q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
        token, after = causal_linear_attention(q, k, v, phi, state=state, key_mask=mask, g=g, gk=gk, backend=backend)
        token = token[..., 0, :]
    elif (made := run_op("step", reuse_state, phi, backend, given)) is None:
        options: dict[str, Any] = {"key_mask": key_mask, "backend": backend}
        token, sums = trace_composed("linear_attention_step", phi, (state.s, state.z, state.peak), q, k, v, **options)
        after = state_of(admit_drawn(phi), sums)
    elif reuse_state:
        token, after = made, state
    else:
        token, after = made[0], LinearState(made[1], made[2], made[3], state.fingerprint)
    return into(out, token), after


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return softmax_with_lse(q, k, v, **options)[0]


def softmax_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: Any = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    score_bias: Tensor | None = None,
    pattern: Any = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    q, k, v = autocast(q, k, v)
    if key_bias is not None:
        (key_bias,) = autocast(key_bias)
    if score_bias is not None:
        (score_bias,) = autocast(score_bias)
    if isinstance(scale, Tensor):
        if scale.ndim:
            raise ShapeError("scale must be a number, or an array of shape ()")
        if not scale.is_floating_point():
            raise DTypeError("scale must have one of the floating dtypes")
        wide = sums_dtype(q)
        q, scale = (q.to(wide) * scale.to(wide)).to(q.dtype), 1.0
    elif scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
        raise ParameterError("scale must be a finite number")
    plan = "causal" if boolean("causal", causal) else "all"
    if pattern is not None:
        plan = plan_name(pattern, q, k, causal)
    if backend == "reference" or differentiated_by_func():
        rows = {"key_mask": key_mask, "key_bias": key_bias, "score_bias": score_bias}
        out, lse = trace_composed("softmax_with_lse", None, q, k, v, plan=plan, scale=scale, backend=backend, **rows)
    else:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        out, lse, _ = OPS.block_softmax(q, k, v, key_mask, key_bias, score_bias, scale, plan, backend)
    return out, lse


def compressed_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    if options.get("backend") == "reference" or differentiated_by_func():
        return trace_composed("compressed_attention", None, q, k, v, **options)
    return compress_and_attend(q, k, v, **options)


def linformer_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, **options: Any) -> Any:
    return trace_composed("linformer_attention", None, q, k, v, e, f, **options)


def nystrom_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    return trace_composed("nystrom_attention", None, q, k, v, **options)


def scatterbrain_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, pattern: Any, *, causal: bool = False, **options: Any
) -> Any:
    plan = plan_name(pattern, q, k, causal)
    return trace_composed("scatterbrain_attention", phi, q, k, v, plan=plan, causal=causal, **options)


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, window: int, *, state: WindowState | None = None, **options: Any
) -> Any:
    if state is not None:
        one_draw(state.fingerprint, admit_drawn(phi).fingerprint)
        options["state"] = tuple(state[:-1])
    out, parts = trace_composed("window_attention", phi, q, k, v, window=int(window), **options)
    return out, state_of(admit_drawn(phi), parts)


def window_attention_step(state: WindowState, q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, **options: Any) -> Any:
    mask = options.pop("key_mask", None)
    mask = None if mask is None else mask[..., None]
    q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
    out, after = window_attention(q, k, v, phi, state.k.shape[-2], state=state, key_mask=mask, **options)
    return out[..., 0, :], after


def query(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("query", 0, phi, x, backend)


def features(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    base = phi.base if isinstance(phi, LearntMap) else phi
    if isinstance(base, FeatureMap):
        base._check_shared()
    return query(phi, x, backend=backend)


def key(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("key", 1, phi, x, backend)


def _features(name: str, side: int, phi: FeatureMap, x: Tensor, backend: str | None) -> Tensor:
    (x,) = autocast(x)
    made = run_op("features", False, phi, backend, {"x": x, "spec": admit_drawn(phi)._content[side]})
    return trace_composed(name, phi, x, backend=backend) if made is None else made


def with_numbers(phi: FeatureMap, **numbers: Tensor | None) -> LearntMap:
    phi._admit_to_graphs()
    given = {name: number for name, number in numbers.items() if number is not None}
    for name, number in given.items():
        shapes = number_shapes(phi, name)
        if tuple(number.shape) not in shapes:
            raise ShapeError(f"{name} must have one of the shapes {shapes}, of which a map without it has none")
    return LearntMap(phi, given)
