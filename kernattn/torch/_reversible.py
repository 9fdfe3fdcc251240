"""Reversible layers as a module: what they need of the forward pass is computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, ParameterError, ShapeError

Rows: TypeAlias = Callable[[Tensor], Tensor]


class Reversible(nn.Module):
    r"""Layers :math:`y_1 = x_1 + F(x_2)`, :math:`y_2 = x_2 + G(y_1)`, trained in memory that does not grow with them.

    Gomez et al. (2017); Kitaev et al. (2020). Only the outputs of the last layer are kept; the way back computes the
    inputs of each layer from its outputs, and F and G once more. Dropout draws the same numbers then, and autocast is
    as it was. F and G must not change their input, and their outputs depend on it and on their parameters alone.

    Parameters
    ----------
    f, g : sequence of torch.nn.Module
        F and G of each layer.

    Raises
    ------
    DTypeError, ParameterError
        If they are no modules, or not as many.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch import reversible
    >>> layers = reversible([torch.nn.Linear(4, 4) for _ in range(3)], [torch.nn.Linear(4, 4) for _ in range(3)])
    >>> y1, y2 = layers(torch.ones(2, 5, 4), torch.ones(2, 5, 4))
    >>> y2.shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, f: Sequence[nn.Module], g: Sequence[nn.Module]) -> None:
        super().__init__()
        given: Any = {"f": f, "g": g}
        for name, modules in given.items():
            if not isinstance(modules, Sequence | nn.ModuleList) or not all(isinstance(m, nn.Module) for m in modules):
                raise DTypeError(f"{name} must be modules of PyTorch, a sequence of them; got {shown(modules)}")
        if len(f) != len(g) or not len(f):
            raise ParameterError(f"f and g must be as many, one at least; got {len(f)} and {len(g)}")
        self.f, self.g = nn.ModuleList(f), nn.ModuleList(g)

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the last layer.

        Parameters
        ----------
        x1, x2 : (..., n, dim) Tensor
            The two halves of the input.

        Returns
        -------
        y1, y2 : (..., n, dim) Tensor
            The two halves of the output.

        Raises
        ------
        DTypeError
            If an input is no tensor.
        """
        for name, x in (("x1", x1), ("x2", x2)):
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.layout is not torch.strided:
                raise DTypeError(f"{name} must be a dense tensor of a floating dtype; got {shown(x)}")
        if x1.shape != x2.shape or x1.device != x2.device:
            raise ShapeError(
                "x1 and x2 must be of one shape, on one device; "
                f"got {tuple(x1.shape)} on {x1.device} and {tuple(x2.shape)} on {x2.device}"
            )
        halves: tuple[Tensor, Tensor] = _Layers.apply(self, x1, x2, *self.parameters())
        return halves


def reversible(f: nn.Module | Sequence[nn.Module], g: nn.Module | Sequence[nn.Module]) -> Reversible:
    """Return one reversible layer of modules f and g, or several of sequences of them: see `Reversible`.

    Parameters
    ----------
    f, g : torch.nn.Module or sequence of them
        F, such as attention, and G, such as a feed-forward part.

    Returns
    -------
    Reversible
        A module (x1, x2) -> (y1, y2).

    Examples
    --------
    See `Reversible`.
    """
    return Reversible(*([x] if isinstance(x, nn.Module) and not isinstance(x, nn.ModuleList) else x for x in (f, g)))


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Reversible, x1: Tensor, x2: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        ctx.layers, ctx.draws, devices = layers, [], _devices(x1)
        kind = x1.device.type
        ctx.cast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        for f, g in zip(layers.f, layers.g, strict=True):
            ctx.draws.append(_draws(devices))
            x1 = x1 + f(x2)
            ctx.draws.append(_draws(devices))
            x2 = x2 + g(x1)
        ctx.buffers = tuple(layers.buffers())
        ctx.save_for_backward(x1, x2, *parameters)  # which are there anyway; changed in place, they are refused
        return x1, x2

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d1: Tensor, d2: Tensor) -> tuple[Any, ...]:
        y1, y2 = ctx.saved_tensors[:2]
        layers, draws = ctx.layers, list(ctx.draws)
        if any(now is not then for now, then in zip(layers.buffers(), ctx.buffers, strict=True)):
            raise ParameterError(
                "buffers of f and g must be those of the forward pass; got others, as a redraw in between puts there"
            )
        sums: dict[Tensor, Tensor] = {}
        for f, g in zip(reversed(layers.f), reversed(layers.g), strict=True):
            value, back = _again(g, y1, d2, draws.pop(), ctx.cast, sums)
            y2, d1 = y2 - value, d1 + back
            value, back = _again(f, y2, d1, draws.pop(), ctx.cast, sums)
            y1, d2 = y1 - value, d2 + back
        return None, d1, d2, *(sums.get(each) for each in layers.parameters())


def _again(
    function: nn.Module, x: Tensor, cotangent: Tensor, draws: Any, cast: tuple[Any, ...], sums: dict[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return a function's value and the cotangent of its input; those of its parameters are added to the sums."""
    own = [each for each in function.parameters() if each.requires_grad]
    with torch.enable_grad(), _drawing(draws), torch.autocast(*cast, cache_enabled=False):
        x = x.detach().requires_grad_()
        value = function(x)
    if not value.requires_grad:
        return value, torch.zeros_like(x)
    grads = torch.autograd.grad(value, (x, *own), cotangent.to(value.dtype), allow_unused=True)
    for parameter, part in zip(own, grads[1:], strict=True):
        if part is not None:
            sums[parameter] = part if parameter not in sums else sums[parameter] + part
    return value.detach(), torch.zeros_like(x) if grads[0] is None else grads[0]


def _devices(x: Tensor) -> list[int]:
    return [x.get_device()] if x.is_cuda else []


def _draws(devices: list[int]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """Return where the generators of random numbers stand."""
    return torch.get_rng_state(), [(device, torch.cuda.get_rng_state(device)) for device in devices]


@contextmanager
def _drawing(draws: tuple[Tensor, list[tuple[int, Tensor]]]) -> Iterator[None]:
    """Let the generators stand there, and put them back."""
    with torch.random.fork_rng(devices=[device for device, _ in draws[1]]):
        torch.set_rng_state(draws[0])
        for device, state in draws[1]:
            torch.cuda.set_rng_state(state, device)
        yield
