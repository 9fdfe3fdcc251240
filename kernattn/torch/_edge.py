"""Where ops of the core meet tensors that PyTorch watches: that are differentiated, traced or transformed."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from kernattn._arrays.bridge import Torch
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum
from kernattn.ops.gated_step.reference import as_sequence
from kernattn.ops.record import Record
from kernattn.ops.records import RECORDS
from kernattn.torch import _library  # noqa: F401 (it tells PyTorch what there is)
from kernattn.torch._functions import Compiled, Transformed
from kernattn.torch._hosted import run_hosted
from kernattn.torch._in_graphs import differentiated_by_func
from kernattn.torch._ops import TORCH_OPS
from kernattn.torch._plans import keep_plan
from kernattn.torch._recorded import DIFFERENTIABLE, call_recorded
from kernattn.torch._specs import keep_map, keep_spec

__all__ = ["call_recorded", "hand_over", "keep_map", "keep_plan", "run_hosted"]

Run: TypeAlias = Callable[..., Any]
TRACED = FakeTensor, FunctionalTensor


def hand_over(library: Torch, name: str, backend: str | None, arguments: tuple[Any, ...]) -> Any:
    """Run an op of the core on tensors; NotImplemented where array operations are to do it."""
    if name == "gated_step":
        return as_sequence(lambda *sequence: hand_over(library, "gated", backend, sequence), *arguments)
    record = RECORDS.get(name)
    if record is None:
        return NotImplemented
    count = len(record.inputs)
    given, options = arguments[:count], arguments[count:]
    if name != "step" and options and options[-1]:  # normalisers have no cotangents
        return NotImplemented
    for at in record.maps_at:  # None where features are computed
        if getattr(given[at], "kind", None) not in DIFFERENTIABLE:
            return NotImplemented
    leaves, constants = record.flat(given)
    run = _way(library, leaves)
    if run is None:
        return NotImplemented
    if name == "step":
        return _step(run, backend, record, given, *options)
    return record.drop_unasked(_outputs(run, backend, record, leaves, constants))


def _way(library: Torch, tensors: list[Tensor | None]) -> Run | None:
    """Return the function that runs ops on tensors, for autograd or as a graph's op; None for unknown tensors."""
    if library.differentiated_forwards():
        return None
    traced, kinds = library.is_traced(), library.kinds
    for x in tensors:
        if x is not None and type(x) not in kinds and not (traced and isinstance(x, TRACED)):
            return None
    if traced:
        return None if differentiated_by_func() else _run_by_name
    layers = torch._C._functorch.get_interpreter_stack()
    if not layers:  # amid others, a call on tensors that none of them wraps is theirs as well
        return _apply
    functional = any(layer.key() == torch._C._functorch.TransformType.Functionalize for layer in layers)
    return None if functional else _apply_transformed


def _apply(name: str, *inputs: Any) -> Any:
    return Compiled.apply(TORCH_OPS[name], *inputs)


def _apply_transformed(name: str, *inputs: Any) -> Any:
    return Transformed.apply(TORCH_OPS[name], *inputs)


def _run_by_name(name: str, *inputs: Any) -> Any:
    return getattr(torch.ops.kernattn, name)(*map(_name, inputs))


def _name(argument: Any) -> Any:
    """Return an argument as a graph holds it: a map or a plan, which is kept for good, by its name."""
    if isinstance(argument, Plan):
        return keep_plan(argument)
    return keep_spec(argument) if isinstance(argument, MapSpec) else argument


def _outputs(run: Run, backend: str | None, record: Record, leaves: list[Any], constants: list[Any]) -> tuple[Any, ...]:
    made = run(record.name, *leaves, *constants, backend)
    return record.outputs_of([made] if isinstance(made, Tensor) else made)


def _step(
    run: Run, backend: str | None, record: Record, given: tuple[Any, ...], reuse_state: bool, out: Tensor | None
) -> Any:
    """Return the output and the state after: by causal attention of one token where there are gradients."""
    state, q, k, v, q_spec, k_spec, key_mask = given
    leaves, constants = record.flat(given)
    watched = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)
    if watched or run is not _run_by_name:
        q, k, v = (x[..., None, :] for x in (q, k, v))
        mask = None if key_mask is None else key_mask[..., None]
        causal = RECORDS["causal"]
        token, _, after = _outputs(run, backend, causal, *causal.flat((q, k, v, q_spec, k_spec, state, mask, None)))
        token = token[..., 0, :]
    elif reuse_state:
        token, after = run("step_", *leaves, *constants, backend), state
    else:
        token, *parts = run("step", *leaves, *constants, backend)
        after = PeakedSum(*parts)
    return (token if out is None else out.copy_(token)), after
