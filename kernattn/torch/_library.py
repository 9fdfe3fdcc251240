"""`torch.ops.kernattn`: what PyTorch is told of each op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernattn.torch import _kernels, _shapes
from kernattn.torch._batched import batched
from kernattn.torch._functions import refused
from kernattn.torch._pairs import PAIRS, TWO, Pair

LIBRARY = torch.library.Library("kernattn", "FRAGMENT")
KEYS = ("CPU", "CUDA")
TOKEN = f"Tensor q, Tensor k, Tensor v, Tensor? key_mask, {TWO}"


def _register(schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> str:
    name = schema.split("(", maxsplit=1)[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in KEYS:
        LIBRARY.impl(name, torch.compiler.disable(kernel), key)
    LIBRARY.impl(name, shapes, "Meta")
    return f"kernattn::{name}"


def _register_pair(pair: Pair) -> None:
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
    _register_pair(_pair)
_register(
    f"step(Tensor s, Tensor z, Tensor peak, {TOKEN}) -> (Tensor, Tensor, Tensor, Tensor)", _kernels.step, _shapes.step
)
_register(f"step_(Tensor(a!) s, Tensor(b!) z, Tensor(c!) peak, {TOKEN}) -> Tensor", _kernels.step_, _shapes.step_)
