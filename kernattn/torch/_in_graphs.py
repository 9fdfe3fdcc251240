"""What the functions share that graphs of PyTorch hold."""

import torch
from torch import Tensor

from kernattn._arrays.autocast import cast
from kernattn._arrays.graphs import in_a_graph
from kernattn.errors import DTypeError, ParameterError, ShapeError

OPS = torch.ops.kernattn
DERIVATIVES = torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp


@in_a_graph
def differentiated_by_func() -> bool:
    """Whether `torch.func` differentiates what is traced: it knows no rules of ops there, and array operations run."""
    return any(layer.key() in DERIVATIVES for layer in torch._C._functorch.get_interpreter_stack() or ())


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors in the dtype of autocast where that is on."""
    return cast(torch, tensors)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of many matrices with one, in their dtype, which autocast leaves as it is.

    The one is expanded: else PyTorch joins the rows of a batch, and asks sizes that are symbols whether it may.
    """
    with torch.autocast(a.device.type, enabled=False):
        return torch.matmul(a, b.expand(*a.shape[:-2], *b.shape))


def sums_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which sums over x run; without the table of the core, which a graph would guard."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def times(x: Tensor, ratio: Tensor) -> Tensor:
    """Return rows times a ratio, by way of the dtype in which sums over them run."""
    wide = sums_dtype(x)
    return (x.to(wide) * ratio.to(wide)).to(x.dtype)


def into(out: Tensor | None, token: Tensor) -> Tensor:
    """Return the output of a token, written into the tensor that was given for it."""
    if out is None:
        return token
    if out.shape != token.shape or out.dtype != token.dtype:
        raise ShapeError("out must have the shape and dtype of the output")
    if token.requires_grad or (out.requires_grad and torch.is_grad_enabled()):
        raise ParameterError("out must be None where a gradient is recorded")
    return out.copy_(token)


def check_gates(q: Tensor, gates: dict[str, Tensor | None]) -> None:
    """Raise unless what stands beside keys has a dtype and as many tokens as the public functions ask for."""
    wide = sums_dtype(q)
    for name, x in gates.items():
        if x is not None and x.dtype != wide and (x.dtype != q.dtype or name == "state"):
            raise DTypeError(f"{name} must have the dtype of q, or that of sums over it")
    for name in ("g", "beta"):
        x = gates.get(name)
        if x is None:
            continue
        if x.ndim < 1 or (x.shape[-1] != 1 and x.shape[-1] != q.shape[-2]):  # a tuple of symbols holds no number
            raise ShapeError(f"{name} must be (..., n) or (..., 1)")
