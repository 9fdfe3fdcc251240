"""Functions of transformers' models with gates, replaced by compiled ones."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernattn._runtime.checks import instance_of
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.huggingface import _lightning
from kernattn.huggingface._packed import named_arguments
from kernattn.huggingface._steps import stepping, wide_scan
from kernattn.ops.dispatch import missing
from kernattn.torch import fla


class Swap(NamedTuple):
    """What stands for a function of a model's module, and the package that the module prefers to its own function."""

    ours: Callable[..., Any]
    package: str | None = None


SWAPS = {
    "torch_chunk_gated_delta_rule": Swap(fla.chunk_gated_delta_rule, "fla"),
    "torch_recurrent_gated_delta_rule": Swap(stepping(fla.fused_recurrent_gated_delta_rule), "fla"),
    "chunk_kimi_delta_attention": Swap(fla.chunk_kda, "fla"),
    "recurrent_kimi_delta_attention": Swap(stepping(fla.fused_recurrent_kda), "fla"),
    "mamba2_chunk_scan": Swap(wide_scan, "mamba_ssm"),
    "mamba2_selective_state_update": Swap(fla.selective_state_update, "mamba_ssm"),
    "causal_conv1d_fn": Swap(fla.causal_conv1d_fn, "causal_conv1d"),
    "causal_conv1d_update": Swap(fla.causal_conv1d_update, "causal_conv1d"),
    "MiniMaxLightningAttention.forward": Swap(_lightning.forward),
}
"""By the names under which layers of a module of transformers look for them, at each call."""

OWN = "_kernattn_own"

UNNAMED = {"self", "query", "key", "value", "hidden_states", "chunk_size"}
"""Arguments that have other names here, and come without theirs, and one that changes nothing."""


class Place(NamedTuple):
    """A name in a module, or in a class of it."""

    module: str
    name: str

    def find(self) -> tuple[Any, str]:
        """Return the module or class, and the name in it."""
        *parents, name = self.name.split(".")
        owner = sys.modules[self.module]
        for parent in parents:
            owner = getattr(owner, parent, None)  # type: ignore[assignment]
        return owner, name

    def get(self) -> Any:
        """Return the function that stands there, or None."""
        owner, name = self.find()
        return getattr(owner, name, None)

    def set(self, function: Callable[..., Any]) -> None:
        """Let a function stand there."""
        setattr(*self.find(), function)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Acceleration:
    """What kernattn stands for: a `with` statement puts back what its call replaced, and `undo` everything.

    Attributes
    ----------
    replaced : tuple of str
        Functions that kernattn stands for, by module and name.
    left : dict of str to str
        Functions that were left, and why.
    """

    def __init__(self, places: list[Place], new: list[Place], left: dict[str, str]) -> None:
        self._places, self._new, self.replaced, self.left = places, new, tuple(map(str, places)), left

    def undo(self) -> None:
        """Put the model family's own functions back, whichever call replaced them."""
        _put_back(self._places)

    def __enter__(self) -> Acceleration:
        return self

    def __exit__(self, *_: object) -> None:
        _put_back(self._new)

    def __repr__(self) -> str:
        left = "".join(f"; not for {name}: {why}" for name, why in self.left.items())
        return f"<kernattn stands for {', '.join(self.replaced)}{left}>"


def _put_back(places: list[Place]) -> None:
    for place in places:
        place.set(getattr(place.get(), OWN, place.get()))


def accelerate(model: nn.Module) -> Acceleration:
    r"""Let compiled loops run the gated attention of a model of transformers on the CPU, for its whole family.

    transformers has a reference in PyTorch for layers of gated linear attention, which it calls unless flash-linear-
    attention, mamba_ssm or causal_conv1d can be imported. The names under which the model's module finds these
    functions are set to kernattn's: the gated delta rule (Qwen3-Next, Qwen3.5, OLMo Hybrid), Kimi Delta Attention (Kimi
    Linear), Mamba-2 (Mamba-2, Bamba, Falcon-H1, and others that share its layer), lightning attention (MiniMax), and
    the short convolutions before them. Results differ by rounding. Gradients, caches and `generate` work as before.
    Functions of these packages are left alone, and so are calls on tensors that are not in host memory, and export.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers, or a part of one. All models of its family are affected, and none is modified.

    Returns
    -------
    Acceleration
        What kernattn stands for and what was left; `undo` puts the family's own functions back. A second call changes
        nothing. Leaving its `with` statement puts back what this call replaced: within another one, nothing.

    Raises
    ------
    ParameterError
        If there is nothing to replace: the model has no such layers, all of them call an installed package or take
        arguments that kernattn does not know, or all its parameters are on other devices.
    BackendUnavailable
        If Numba is not installed.

    Examples
    --------
    >>> import torch
    >>> from transformers import Mamba2Config, Mamba2ForCausalLM
    >>> from kernattn.huggingface import accelerate
    >>> sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_heads": 4, "head_dim": 8, "state_size": 8}
    >>> model = Mamba2ForCausalLM(Mamba2Config(**sizes, n_groups=1, vocab_size=9, chunk_size=16)).eval()
    >>> tokens = torch.tensor([[1, 2, 3, 4]])
    >>> with torch.no_grad():
    ...     own = model(tokens).logits
    ...     with accelerate(model):
    ...         ours = model(tokens).logits
    >>> bool((ours - own).abs().max() < 1e-5)
    True
    """
    instance_of("model", model, nn.Module)
    if (why := missing("cpu")) is not None:
        raise BackendUnavailable(f"accelerate needs compiled loops: {why}")
    name = type(model).__name__
    devices = {str(p.device) for p in model.parameters()}
    if devices and not any(device.startswith(("cpu", "meta")) for device in devices):
        raise ParameterError(f"{name} must be on the CPU, where kernattn's loops run; it is on {', '.join(devices)}")
    swapped = [at for module in _modules(model) for at in (Place(module, each) for each in SWAPS) if at.get()]
    if not swapped:
        raise ParameterError(
            f"{name} has no layer that kernattn could run: no gated delta rule, Kimi Delta Attention, Mamba-2, "
            "lightning attention or short convolution as transformers 5 writes them"
        )
    left = {at: why for at in swapped if (why := _reason(at)) is not None}
    places = [at for at in swapped if at not in left]
    if not places:
        raise ParameterError(f"{name} is left alone: {'; '.join(sorted(set(left.values())))}")
    new = [at for at in places if not hasattr(at.get(), OWN)]
    for at in new:
        at.set(_standing_for(at.get(), SWAPS[at.name].ours))
    return Acceleration(places, new, {str(at): why for at, why in left.items()})


def _reason(at: Place) -> str | None:
    """Return why a function is left alone; None where it is not."""
    ours, package = SWAPS[at.name]
    if package is not None and _is_imported(package):
        return f"the model runs the installed {package}"
    unknown = _names(at.get()) - _names(ours) - UNNAMED
    return f"it takes {', '.join(sorted(unknown))}, which kernattn does not know" if unknown else None


def _is_imported(package: str) -> bool:
    """Whether transformers could import a package: it tries before a model's module stands. A bare folder is none."""
    return getattr(sys.modules.get(package), "__file__", None) is not None


def _names(function: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}


def _modules(model: nn.Module) -> list[str]:
    """Return the modules of transformers in which the classes of a model's layers stand."""
    names = {kind.__module__ for layer in model.modules() for kind in type(layer).__mro__}
    return sorted(name for name in names if name.startswith("transformers.models."))


def _standing_for(own: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `ours` where it can, with the arguments that it names, and else the model's own."""
    named = _names(ours)

    @wraps(own)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = named_arguments(named, kwargs) if _serves(args, kwargs) else None
        return own(*args, **kwargs) if given is None else ours(*args, **given)

    setattr(run, OWN, own)
    return run


def _serves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether loops can run a call: its tensors are in host memory, and its activation, if there is one, is silu."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.device.type != "cpu":
            return False
        if isinstance(value, str) and value not in ("silu", "swish"):
            return False
    return not torch.compiler.is_exporting()
