"""Gated attention where `torch.compile` traces it: an op of the graph, and members that are traced below it."""

from inspect import unwrap
from typing import Any

import torch
from torch import Tensor

from kernattn import attention
from kernattn._arrays.namespaces import namespace
from kernattn._runtime.checks import boolean
from kernattn.attention import GatedState, GatedStretch, _gated_states
from kernattn.errors import DTypeError, ParameterError
from kernattn.ops.gated.reference import log_decays
from kernattn.torch._in_graphs import OPS, autocast, check_gates, differentiated_by_func, into
from kernattn.torch._traced_below import trace_composed, traced_below

XP = namespace(like=torch.empty(0))  # found before any graph, which could not trace how


def _member_below(name: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the arguments that a member of gated attention makes of tensors, traced below it."""
    return getattr(attention.gates, name)(*given, **options)


member = traced_below(_member_below, any_size=True)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    beta: Tensor | None = None,
    erase: Any = None,
    scale: float | None = None,
    l2_normalise: bool = False,
    state: GatedState | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    backend: str | None = None,
) -> tuple[Tensor, GatedState]:
    q, k, v = autocast(q, k, v)
    read = write = s = None
    if erase is not None:
        if beta is not None or not isinstance(erase, tuple | list) or len(erase) != 2 or any(x is None for x in erase):
            raise ParameterError("erase must be a pair of arrays, and excludes beta")
        read, write = erase
    if state is not None:
        if type(state) is not GatedState:
            raise DTypeError("state must be a GatedState, as gated_linear_attention returns it")
        s = state.s
    check_gates(q, {"g": g, "gk": gk, "beta": beta, "erase[0]": read, "erase[1]": write, "state": s})
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
        raise ParameterError("scale must be a finite number")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    l2_normalise = boolean("l2_normalise", l2_normalise)
    g, beta = (None if x is None else x.expand(*x.shape[:-1], q.shape[-2]) for x in (g, beta))
    if differentiated_by_func():
        if s is not None:
            raise ParameterError("state must be None where torch.func differentiates within a graph")
        options = {"g": g, "gk": gk, "beta": beta, "erase": erase, "key_mask": key_mask, "segment_ids": segment_ids}
        more: dict[str, Any] = {"scale": scale, "l2_normalise": l2_normalise, "backend": backend}
        out, (s,) = trace_composed("gated_linear_attention", None, q, k, v, **options, **more)
        return out, GatedState(s)
    out, after = OPS.gated(q, k, v, g, gk, beta, read, write, s, key_mask, segment_ids, scale, l2_normalise, backend)
    return out, GatedState(after)


def gated_linear_attention_step(
    state: GatedState | None, q: Tensor, k: Tensor, v: Tensor, *, erase: Any = None, reuse_state: bool = False,
    out: Tensor | None = None, **options: Any,
) -> tuple[Tensor, GatedState]:  # fmt: skip
    for name in ("g", "beta", "key_mask", "gk"):
        if options.get(name) is not None:
            options[name] = options[name][..., None, :] if name == "gk" else options[name][..., None]
    if erase is not None:
        erase = erase[0][..., None, :], erase[1][..., None, :]
    q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
    token, after = gated_linear_attention(q, k, v, erase=erase, state=state, **options)
    if reuse_state and state is not None:
        after = GatedState(state.s.copy_(after.s))
    return into(out, token[..., 0, :]), after


def gated_state(
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    beta: Tensor | None = None,
    erase: Any = None,
    **options: Any,
) -> GatedStretch:
    given = {"g": g, "gk": gk, "beta": beta, "erase": erase, **options}
    s = gated_linear_attention(k, k, v, scale=1.0, **given)[1].s
    d = k.shape[-1]
    if beta is None and erase is None:
        g = None if g is None else g.expand(*g.shape[:-1], k.shape[-2])
        total = _log_decays(XP, g, gk, options.get("key_mask"), torch.zeros_like(s[..., :1, :1]))
        return GatedStretch(s, total.sum(-2).exp()[..., None])
    unit = torch.eye(d, dtype=s.dtype, device=s.device).expand(*s.shape[:-2], d, d)
    nothing = torch.zeros_like(v[..., :1]).expand(*v.shape[:-1], d)
    return GatedStretch(s, gated_linear_attention(k, k, nothing, scale=1.0, state=GatedState(unit), **given)[1].s)


def merge_gated(first: Any, then: Any) -> Any:
    with torch.autocast(first.s.device.type, enabled=False):
        return _merge_gated(first, then)


_merge_gated: Any = unwrap(_gated_states.merge_gated)  # without flags of NumPy, which no graph traces
_log_decays: Any = vars(log_decays)["__wrapped__"]
