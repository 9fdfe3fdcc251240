"""Pairs of ops as functions that PyTorch differentiates."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from kernattn.torch._batched import batched
from kernattn.torch._ops import Pair

TWICE = (
    "the compiled gradients of kernattn cannot be differentiated again; with backend='reference', gradients are array "
    "operations, which can"
)
FORWARDS = (
    "the compiled functions of kernattn have no forward-mode derivatives (jvp); with backend='reference' they are "
    "array operations, which have"
)


def refused(ctx: Any, *cotangents: Any) -> Any:
    """Raise: the derivative of a pullback was asked for."""
    raise NotImplementedError(TWICE)


class Compiled(torch.autograd.Function):
    """A pair of ops on plain tensors."""

    @staticmethod
    def forward(ctx: Any, pair: Pair, *inputs: Any) -> Any:
        """Return what the op gives."""
        output = pair.forward(*inputs)
        pair.save(ctx, inputs, output)
        ctx.pair = pair
        return output

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the inputs."""
        pair = ctx.pair
        run = partial(Pullback.apply, pair) if torch.is_grad_enabled() else pair.backward
        return None, *pair.pull(ctx, ctx.needs_input_grad[1:], cotangents, run)


class Pullback(torch.autograd.Function):
    """A pullback whose own derivative is refused."""

    @staticmethod
    def forward(pair: Pair, *taken: Any) -> Any:
        """Return the cotangents."""
        return tuple(pair.backward(*taken))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    backward = staticmethod(refused)

    @staticmethod
    def vmap(info: Any, dims: Any, pair: Pair, *taken: Any) -> Any:
        """Return the cotangents of a batch."""
        found, axes = batched(pair, True, partial(Pullback.apply, pair), info, dims[1:], *taken)
        return tuple(found), tuple(axes)


class Transformed(torch.autograd.Function):
    """A pair of ops on tensors that `torch.func` transforms."""

    @staticmethod
    def forward(pair: Pair, *inputs: Any) -> Any:
        """Return what the op gives."""
        return pair.forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the pullback takes."""
        ctx.pair, *rest = inputs
        ctx.pair.save(ctx, tuple(rest), output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the inputs."""
        pair = ctx.pair
        return None, *pair.pull(ctx, ctx.needs_input_grad[1:], cotangents, partial(Pullback.apply, pair))

    @staticmethod
    def vmap(info: Any, dims: Any, pair: Pair, *inputs: Any) -> Any:
        """Return what the op gives for a batch."""
        return batched(pair, False, partial(Transformed.apply, pair), info, dims[1:], *inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Raise: there are no tangents here."""
        raise NotImplementedError(FORWARDS)
