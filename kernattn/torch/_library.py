"""`torch.ops.kernattn`: what PyTorch is told of each op, from its record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernattn.torch._batched import batched
from kernattn.torch._functions import refused
from kernattn.torch._ops import PAIRS, STEP, Pair, step_

LIBRARY = torch.library.Library("kernattn", "FRAGMENT")
KEYS = ("CPU", "CUDA")


def _register(schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    name = schema.split("(", maxsplit=1)[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in KEYS:
        LIBRARY.impl(name, torch.compiler.disable(kernel), key)
    LIBRARY.impl(name, shapes, "Meta")
    return f"kernattn::{name}"


def register(pair: Pair) -> None:
    """Tell PyTorch of an op and its pullback: schemas, shapes, autograd and `vmap`."""
    forward, backward = pair.schemas
    name = _register(forward, pair.forward, pair.shapes)
    pullback = _register(backward, pair.backward, pair.cotangents)
    run = getattr(torch.ops.kernattn, f"{pair.name}_vjp")
    torch.library.register_autograd(
        name,
        lambda ctx, *cotangents: pair.pull(ctx, ctx.needs_input_grad, cotangents, run),
        setup_context=pair.save,
        lib=LIBRARY,
    )
    torch.library.register_autograd(pullback, refused, lib=LIBRARY)
    ops = getattr(torch.ops.kernattn, pair.name), run
    for op, is_pullback in zip(ops, (False, True), strict=True):
        torch.library.register_vmap(op.default, partial(batched, pair, is_pullback, op), lib=LIBRARY)


for _pair in PAIRS.values():
    register(_pair)
_step = STEP.schemas[0]
_in_place = _step.replace("step(", "step_(").split(" -> ")[0] + " -> Tensor"
for _letter, _part in zip("abc", ("s", "z", "peak"), strict=True):
    _in_place = _in_place.replace(f"Tensor state_{_part}", f"Tensor({_letter}!) state_{_part}")
_register(_step, STEP.forward, STEP.shapes)
_register(_in_place, step_, lambda *inputs: STEP.shapes(*inputs)[0])
