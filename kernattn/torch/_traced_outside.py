"""Functions before which graphs break: they decide on the host what to compute."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from kernattn import attention
from kernattn._arrays.graphs import in_a_graph
from kernattn.features._choose import factory
from kernattn.torch._outside import skip


def _outside_graphs(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Let graphs break before a function that decides on the host, and trace nothing of what it calls."""
    skip(function)

    @torch.compiler.disable(reason=reason)  # type: ignore[untyped-decorator]
    def left_out(*given: Any, **options: Any) -> Any:
        return function(*given, **options)

    return left_out  # type: ignore[no-any-return]


kernel_attention, lsh_attention, routing_attention = (
    _outside_graphs(function, "it decides on the host what to compute")
    for function in (attention.kernel_attention, attention.lsh_attention, attention.routing_attention)
)
random_features = _outside_graphs(
    factory.random_features, "random_features draws on the host: make the map outside of the compiled function"
)


@in_a_graph
def _skip_solver(name: str) -> bool:
    skip(getattr(import_module("kernattn.solvers"), name))  # which is loaded when it is called, and no sooner
    return True


def _solver(name: str) -> Callable[..., Any]:
    """Return the namesake of a function of the solvers, before which graphs break."""

    @torch.compiler.disable(reason="it computes on the host")  # type: ignore[untyped-decorator]
    def left_out(*given: Any, **options: Any) -> Any:
        return getattr(import_module("kernattn.solvers"), name)(*given, **options)

    def namesake(*given: Any, **options: Any) -> Any:
        _skip_solver(name)
        return left_out(*given, **options)

    return namesake


log_evidence, predict = map(_solver, ("log_evidence", "predict"))
