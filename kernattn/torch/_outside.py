"""Functions that no graph holds, marked without loading the compiler, as `torch.compiler.disable` would."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

F = TypeVar("F", bound=Callable[..., Any])


def skip(function: F) -> F:
    """Let a function, and all that it calls, run as it is though a compiler looks on."""
    strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function


def outside_graphs(reason: str | None = None) -> Callable[[F], F]:
    """Let graphs end before a function; where they may not, the error says the reason."""

    def mark(function: F) -> F:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return skip(function)

    return mark
