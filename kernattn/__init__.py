"""Random-feature kernels and linear attention on any array library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernattn import _edges as _edges
from kernattn._runtime.fork import import_whole as _imported
from kernattn._version import __version__ as __version__

if TYPE_CHECKING:
    from kernattn import (
        attention,
        bench,
        errors,
        features,
        kernels,
        metrics,
        projections,
        solvers,
        studies,
        transfer,
        transformer,
    )
    from kernattn._arrays.precision import precision
    from kernattn._gradients import vjp
    from kernattn._warmup import warmup
    from kernattn.attention import (
        LinearState,
        attend,
        causal_linear_attention,
        gated_linear_attention,
        gated_linear_attention_step,
        gates,
        initial_state,
        kernel_attention,
        key_state,
        linear_attention,
        linear_attention_step,
        load_state,
        merge_states,
        move_states,
        patterns,
        put_states,
        save_state,
        softmax_attention,
        stack_states,
        take_states,
    )
    from kernattn.features import load, random_features, with_numbers

__all__ = [
    "LinearState",
    "attend",
    "attention",
    "bench",
    "causal_linear_attention",
    "errors",
    "features",
    "gated_linear_attention",
    "gated_linear_attention_step",
    "gates",
    "initial_state",
    "kernel_attention",
    "kernels",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "load",
    "load_state",
    "merge_states",
    "metrics",
    "move_states",
    "patterns",
    "precision",
    "projections",
    "put_states",
    "random_features",
    "save_state",
    "softmax_attention",
    "solvers",
    "stack_states",
    "studies",
    "take_states",
    "transfer",
    "transformer",
    "vjp",
    "warmup",
    "with_numbers",
]

_ROOMS = "attention bench errors features kernels metrics projections solvers studies transfer transformer".split()  # noqa: SIM905
_HOMES = dict.fromkeys(__all__, "attention") | {name: name for name in _ROOMS}
_HOMES |= {"precision": "_arrays.precision", "vjp": "_gradients", "warmup": "_warmup"}
_HOMES |= dict.fromkeys(("load", "random_features", "with_numbers"), "features")

_EDGES = ("dask", "huggingface", "jax", "sklearn", "torch")


def __getattr__(name: str) -> Any:
    if name in _EDGES:
        raise AttributeError(f"kernattn.{name} is not imported yet: import kernattn.{name} first")
    if name not in __all__:
        there = _imported("kernattn._runtime.elsewhere").WHERE.get(name)
        raise AttributeError(f"module 'kernattn' has no attribute {name!r}{(there and f': that is {there}') or ''}")
    home = _imported(f"kernattn.{_HOMES[name]}")
    value = home if name in _ROOMS else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
