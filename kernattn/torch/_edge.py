"""Where ops of the core meet tensors that PyTorch watches: that are differentiated, traced or transformed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from kernattn._arrays.bridge import Torch
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum
from kernattn.torch._functions import Compiled, Transformed
from kernattn.torch._pairs import PAIRS
from kernattn.torch._plans import keep_plan
from kernattn.torch._specs import keep_spec, name_of, numbers_of

Run: TypeAlias = Callable[..., Any]
TRACED = FakeTensor, FunctionalTensor


def handed(library: Torch, name: str, backend: str | None, arguments: tuple[Any, ...]) -> Any:
    """Return what an op of the core makes of its arguments; NotImplemented where array operations are to do it."""
    if name not in OPS or not all(map(_fits, arguments)):
        return NotImplemented
    way = _way(library, arguments)
    return NotImplemented if way is None else OPS[name](way, backend, *arguments)


def _fits(argument: Any) -> bool:
    """Do the ops here take an argument, and return all of its cotangents?"""
    if isinstance(argument, MapSpec):
        return KINDS[argument.kind].pull is not None
    return not isinstance(argument, ScaledFeatures)


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    """Return the tensors among arguments, those of states and maps included."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple):
            found += _tensors(value)
        elif isinstance(value, MapSpec):
            found += [x for x in numbers_of(value) if x is not None]
    return found


def _way(library: Torch, arguments: tuple[Any, ...]) -> Run | None:
    """Return what runs ops on their arguments: a function for autograd, or a graph's op; None for unknown tensors."""
    tensors = _tensors(arguments)
    if library.differentiated_forwards() or library.scripted():
        return None
    traced = library.traced()
    if not all(type(x) in library.kinds or (traced and isinstance(x, TRACED)) for x in tensors):
        return None
    if traced:
        for x in arguments:
            if isinstance(x, MapSpec):
                keep_spec(x)
        return _named
    layers = torch._C._functorch.get_interpreter_stack()
    if not layers:  # amid others, a call on tensors that none of them wraps is theirs as well
        return _applied
    functional = any(layer.key() == torch._C._functorch.TransformType.Functionalize for layer in layers)
    return None if functional else _transformed


def _applied(name: str, *given: Any) -> Any:
    return Compiled.apply(PAIRS[name], *given)


def _transformed(name: str, *given: Any) -> Any:
    return Transformed.apply(PAIRS[name], *given)


def _named(name: str, *given: Any) -> Any:
    return getattr(torch.ops.kernattn, name)(*map(_name, given))


def _name(argument: Any) -> Any:
    if isinstance(argument, Plan):
        return keep_plan(argument)
    return name_of(argument) if isinstance(argument, MapSpec) else argument


def _features(run: Run, backend: str | None, x: Tensor, spec: MapSpec) -> Any:
    return run("features", x, *numbers_of(spec), spec, backend)


def _key_state(run: Run, backend: str | None, k: Tensor, v: Tensor, spec: MapSpec, key_mask: Any) -> PeakedSum:
    return PeakedSum(*run("key_state", k, v, key_mask, *numbers_of(spec), spec, backend))


def _attend(
    run: Run, backend: str | None, state: PeakedSum, q: Tensor, spec: MapSpec, dtype: Any, normaliser: bool
) -> Any:
    if normaliser:
        return NotImplemented
    out, *_ = run("attend", *state, q, *numbers_of(spec), spec, backend)
    return out, None


def _linear_attention(
    run: Run,
    backend: str | None,
    k: Tensor,
    v: Tensor,
    k_spec: MapSpec,
    key_mask: Any,
    q: Tensor,
    q_spec: MapSpec,
    dtype: Any,
    normaliser: bool,
) -> Any:
    out, *_ = run("linear_attention", q, k, v, key_mask, *numbers_of(q_spec), q_spec, k_spec, backend)
    return out, None


def _causal(
    run: Run,
    backend: str | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_spec: MapSpec,
    k_spec: MapSpec,
    state: PeakedSum | None,
    key_mask: Any,
    segment_ids: Any,
    normaliser: bool,
) -> Any:
    if normaliser:
        return NotImplemented
    before = (None, None, None) if state is None else state
    maps = *numbers_of(q_spec), q_spec, k_spec
    out, _, _, *after = run("causal", q, k, v, *before, key_mask, segment_ids, *maps, backend)
    return out, None, PeakedSum(*after)


def _step(
    run: Run,
    backend: str | None,
    state: PeakedSum,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_spec: MapSpec,
    k_spec: MapSpec,
    key_mask: Any,
    reuse_state: bool,
    out: Tensor | None,
) -> Any:
    """Return the output and the state after: by causal attention of one token where there are gradients."""
    tensors = _tensors((state, q, k, v, q_spec))
    if (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)) or run is not _named:
        q, k, v = (x[..., None, :] for x in (q, k, v))
        mask = None if key_mask is None else key_mask[..., None]
        found, _, after = _causal(run, backend, q, k, v, q_spec, k_spec, state, mask, None, False)
        found = found[..., 0, :]
    elif reuse_state:
        maps = *numbers_of(q_spec), q_spec, k_spec
        found, after = run("step_", *state, q, k, v, key_mask, *maps, backend), state
    else:
        found, *parts = run("step", *state, q, k, v, key_mask, *numbers_of(q_spec), q_spec, k_spec, backend)
        after = PeakedSum(*parts)
    return (found if out is None else out.copy_(found)), after


def _block_softmax(
    run: Run,
    backend: str | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    plan: Plan,
    key_mask: Any,
    key_bias: Any,
) -> Any:
    return run("block_softmax", q, k, v, key_mask, key_bias, scale, plan, backend)


OPS: dict[str, Callable[..., Any]] = {
    "features": _features,
    "key_state": _key_state,
    "attend": _attend,
    "linear_attention": _linear_attention,
    "causal": _causal,
    "step": _step,
    "block_softmax": _block_softmax,
}
