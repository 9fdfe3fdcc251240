"""Ops and their pullbacks: what each takes, gives and keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernattn._runtime.lazy import lazy
from kernattn.torch import _kernels, _shapes
from kernattn.torch._specs import NUMBERS, resolved

ONE = "Tensor? omega, Tensor? offset, Tensor? row_weights, str spec, str? backend"
TWO = "Tensor? omega, Tensor? offset, Tensor? row_weights, str q_spec, str k_spec, str? backend"
FLOATS = {"x", "q", "k", "v", "key_bias", "s", "z", *NUMBERS}


@dataclass(frozen=True)
class Pair:
    """An op and its pullback."""

    name: str
    inputs: str  # of its schema
    outputs: tuple[str, ...]
    kept: tuple[str, ...]  # outputs that the pullback takes
    given: tuple[str, ...]  # outputs that have cotangents
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    shapes: Callable[..., Any]

    @lazy
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return _names(self.inputs)

    @lazy
    def taken(self) -> tuple[str, ...]:
        """The names of what the pullback takes."""
        return _names(self._taken)

    @lazy
    def schemas(self) -> tuple[str, str]:
        """The schemas of both."""
        results = "Tensor" if len(self.outputs) == 1 else f"({', '.join(f'Tensor {name}' for name in self.outputs)})"
        return f"{self.name}({self.inputs}) -> {results}", f"{self.name}_vjp({self._taken}) -> Tensor[]"

    @property
    def _taken(self) -> str:
        kept = "".join(f", Tensor kept_{name}" for name in self.kept)
        given = "".join(f", Tensor? g_{name}" for name in self.given)
        return f"{self.inputs}{kept}{given}, bool learn"

    def differentiated(self, inputs: Sequence[Any], learn: bool) -> list[bool]:
        """Return for each input whether the pullback returns a cotangent of it."""
        return [
            x is not None and name in FLOATS and (learn or name not in NUMBERS)
            for name, x in zip(self.names, inputs, strict=True)
        ]

    def cotangents(self, *taken: Any) -> list[torch.Tensor]:
        """Return tensors shaped as what the pullback returns."""
        inputs = taken[: len(self.names)]
        wanted = self.differentiated(inputs, taken[-1])
        return _shapes.cotangents(*(x for x, some in zip(inputs, wanted, strict=True) if some))

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the pullback takes."""
        outputs = dict(zip(self.outputs, (output,) if isinstance(output, torch.Tensor) else output, strict=True))
        ctx.mark_non_differentiable(*(x for name, x in outputs.items() if name not in self.given))
        ctx.set_materialize_grads(False)
        tensors = [x if isinstance(x, torch.Tensor) else None for x in inputs]
        ctx.save_for_backward(*tensors, *(outputs[name] for name in self.kept))
        ctx.maps = [resolved(x) for name, x in zip(self.names, inputs, strict=True) if name.endswith("spec")]  # alive
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]

    def pull(self, ctx: Any, needed: tuple[bool, ...], cotangents: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """Return the cotangents of the inputs, by a way to run the pullback."""
        saved, count = ctx.saved_tensors, len(self.names)
        inputs = tuple(y if x is None else x for x, y in zip(saved[:count], ctx.others, strict=True))
        found = dict(zip(self.outputs, cotangents, strict=True))
        if all(found[name] is None for name in self.given):
            return (None,) * count
        learn = any(some for some, name in zip(needed, self.names, strict=True) if name in NUMBERS)
        results = iter(run(*inputs, *saved[count:], *(found[name] for name in self.given), learn))
        return tuple(next(results) if some else None for some in self.differentiated(inputs, learn))


def _names(arguments: str) -> tuple[str, ...]:
    return tuple(each.split()[-1] for each in arguments.split(", "))


def _words(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _pair(name: str, inputs: str, outputs: str, kept: str, given: str) -> Pair:
    forward, backward, shapes = getattr(_kernels, name), getattr(_kernels, f"{name}_vjp"), getattr(_shapes, name)
    return Pair(name, inputs, _words(outputs), _words(kept), _words(given), forward, backward, shapes)


PAIRS = {
    pair.name: pair
    for pair in (
        _pair("features", f"Tensor x, {ONE}", "phi", "", "phi"),
        _pair("key_state", f"Tensor k, Tensor v, Tensor? key_mask, {ONE}", "s z peak", "peak", "s z"),
        _pair(
            "attend",
            f"Tensor s, Tensor z, Tensor peak, Tensor q, {ONE}",
            "out row_peak row_z",
            "out row_peak row_z",
            "out",
        ),
        _pair(
            "linear_attention",
            f"Tensor q, Tensor k, Tensor v, Tensor? key_mask, {TWO}",
            "out row_peak row_z s z peak",
            "out row_peak row_z s z peak",
            "out",
        ),
        _pair(
            "causal",
            "Tensor q, Tensor k, Tensor v, Tensor? s, Tensor? z, Tensor? peak, Tensor? key_mask, "
            f"Tensor? segment_ids, {TWO}",
            "out row_peak row_z s z peak",
            "out row_peak row_z peak",
            "out s z",
        ),
        _pair(
            "block_softmax",
            "Tensor q, Tensor k, Tensor v, Tensor? key_mask, Tensor? key_bias, float scale, str plan, str? backend",
            "out lse",
            "out lse",
            "out lse",
        ),
    )
}
