"""`torch.ops.kernattn`: what PyTorch is told of each op, from its record."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernattn.torch._batched import run_batched
from kernattn.torch._functions import refuse_second
from kernattn.torch._ops import STEP, TORCH_OPS, TorchOp, step_
from kernattn.torch._outside import skip

LIBRARY = torch.library.Library("kernattn", "FRAGMENT")


def _register(op: TorchOp, schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    name = f"kernattn::{schema.split('(', maxsplit=1)[0]}"
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(name, ("cpu", "cuda"), skip(op.guard(kernel)), lib=LIBRARY)
    torch.library.register_fake(name, op.guard_shapes(shapes), lib=LIBRARY)
    return name


def register(op: TorchOp) -> None:
    """Tell PyTorch of an op and its pullback: schemas, shapes, autograd and `vmap`."""
    forward, backward = op.schemas
    name = _register(op, forward, op.guard_logs(op.forward), op.shapes)
    pullback = _register(op, backward, op.backward, op.cotangents)
    run = getattr(torch.ops.kernattn, f"{op.name}_vjp")
    torch.library.register_autograd(
        name,
        lambda ctx, *cotangents: op.pull(ctx, ctx.needs_input_grad, cotangents, run),
        setup_context=op.save,
        lib=LIBRARY,
    )
    torch.library.register_autograd(pullback, refuse_second, lib=LIBRARY)
    ops = getattr(torch.ops.kernattn, op.name), run
    for overloads, is_pullback in zip(ops, (False, True), strict=True):
        torch.library.register_vmap(overloads.default, partial(run_batched, op, is_pullback, overloads), lib=LIBRARY)


for _op in TORCH_OPS.values():
    register(_op)
_step = STEP.schemas[0]
_in_place = _step.replace("step(", "step_(").split(" -> ")[0] + " -> Tensor"
for _letter, _part in zip("abc", ("s", "z", "peak"), strict=True):
    _in_place = _in_place.replace(f"Tensor state_{_part}", f"Tensor({_letter}!) state_{_part}")
_register(STEP, _step, STEP.forward, STEP.shapes)
_register(STEP, _in_place, step_, lambda *inputs: STEP.shapes(*inputs)[0])
