"""Functions before which graphs break: they decide on the host what to compute."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame

from kernattn import attention
from kernattn.features._choose import factory


def _outside_graphs(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Let graphs break before a function that decides on the host, and trace nothing of what it calls."""
    strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)

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
