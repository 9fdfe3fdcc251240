"""Ops as functions that PyTorch differentiates."""

from functools import partial
from typing import Any

import torch

from kernattn.torch._batched import batched
from kernattn.torch._ops import TorchOp

TWICE = (
    "the compiled gradients of kernattn cannot be differentiated again; with backend='reference', gradients are array "
    "operations, which can"
)


def refuse_second(ctx: Any, *cotangents: Any) -> Any:
    """Raise: the derivative of a pullback was asked for."""
    raise NotImplementedError(TWICE)


class Compiled(torch.autograd.Function):
    """An op and its pullback on plain tensors."""

    @staticmethod
    def forward(ctx: Any, op: TorchOp, *inputs: Any) -> Any:
        """Return what the op gives."""
        output = op.forward(*inputs)
        op.save(ctx, inputs, output)
        ctx.op = op
        return output

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the inputs."""
        op = ctx.op
        run = partial(Pullback.apply, op) if torch.is_grad_enabled() else op.backward
        return None, *op.pull(ctx, ctx.needs_input_grad[1:], cotangents, run)


class Pullback(torch.autograd.Function):
    """A pullback whose own derivative is refused."""

    @staticmethod
    def forward(op: TorchOp, *taken: Any) -> Any:
        """Return the cotangents."""
        return tuple(op.backward(*taken))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    backward = staticmethod(refuse_second)

    @staticmethod
    def vmap(info: Any, dims: Any, op: TorchOp, *taken: Any) -> Any:
        """Return the cotangents of a batch."""
        found, axes = batched(op, True, partial(Pullback.apply, op), info, dims[1:], *taken)
        return tuple(found), tuple(axes)


class Transformed(torch.autograd.Function):
    """An op and its pullback on tensors that `torch.func` transforms."""

    @staticmethod
    def forward(op: TorchOp, *inputs: Any) -> Any:
        """Return what the op gives."""
        return op.forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the pullback takes."""
        ctx.op, *rest = inputs
        ctx.op.save(ctx, tuple(rest), output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the inputs."""
        op = ctx.op
        return None, *op.pull(ctx, ctx.needs_input_grad[1:], cotangents, partial(Pullback.apply, op))

    @staticmethod
    def vmap(info: Any, dims: Any, op: TorchOp, *inputs: Any) -> Any:
        """Return what the op gives for a batch."""
        return batched(op, False, partial(Transformed.apply, op), info, dims[1:], *inputs)
