"""Ops as functions that PyTorch differentiates."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from kernattn.torch._batched import batched_by_autograd, run_batched
from kernattn.torch._ops import TorchOp, fill_places


class Run(Protocol):
    """A run of an op: where its tensors stand among the leaves, what follows these, and the outputs."""

    op: TorchOp
    places: list[int]
    rest: tuple[Any, ...]

    def make_tensors(self) -> list[torch.Tensor]:
        """Return the outputs' leaves as tensors."""


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
        """Run the op, and keep what the pullback takes."""
        output = op.forward(*inputs)
        op.save(ctx, inputs, output)
        ctx.op = op
        return output

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the inputs."""
        return None, *ctx.op.pull(ctx, ctx.needs_input_grad[1:], cotangents, _pullback(ctx.op))


class Recorded(torch.autograd.Function):
    """An op that has run, on arrays that stand for tensors, and its pullback."""

    @staticmethod
    def forward(ctx: Any, run: Run, *tensors: Any) -> Any:
        """Return the outputs that are returned, as tensors; all are made here, and those that are kept are saved."""
        op, made = run.op, run.make_tensors()
        ctx.op, ctx.places, ctx.rest = op, run.places, run.rest
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[made[at] for at in op.undifferentiated_at if at in op.returned_at])
        ctx.save_for_backward(*tensors, *[made[at] for at in op.kept_at])
        return tuple([made[at] for at in op.returned_at])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the tensors."""
        op, places = ctx.op, ctx.places
        needed = fill_places(op.count, places, ctx.needs_input_grad[1:])
        grads = op.pull(ctx, needed, fill_places(len(op.outputs), op.returned_at, cotangents), _pullback(op))
        return None, *[grads[at] for at in places]


apply_recorded = super(torch.autograd.Function, Recorded).apply
"""`Recorded.apply` of tensors that `torch.func` never saw: that one looks at every argument for those it did."""


def _pullback(op: TorchOp) -> Callable[..., Any]:
    return partial(batched_by_autograd, op, partial(Pullback.apply, op) if torch.is_grad_enabled() else op.backward)


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
        grads, axes = run_batched(op, True, partial(Pullback.apply, op), info, dims[1:], *taken)
        return tuple(grads), tuple(axes)


class Transformed(torch.autograd.Function):
    """An op and its pullback on tensors that `torch.func` transforms."""

    @staticmethod
    def forward(op: TorchOp, *inputs: Any) -> Any:
        """Run the op."""
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
        """Run the op on a batch."""
        return run_batched(op, False, partial(Transformed.apply, op), info, dims[1:], *inputs)
