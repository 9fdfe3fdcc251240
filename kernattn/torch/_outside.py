"""Functions that no graph holds, marked without loading the compiler, as `torch.compiler.disable` would."""

from collections.abc import Callable
from typing import Any, TypeVar

from kernattn._arrays.graphs import LEFT_OUT, leave_out

F = TypeVar("F", bound=Callable[..., Any])


def skip(function: F) -> F:
    """Let a function, and all that it calls, run as it is though a compiler looks on."""
    LEFT_OUT.append(function.__code__)
    leave_out()
    return function


def outside_graphs(reason: str | None = None) -> Callable[[F], F]:
    """Let graphs end before a function; where they may not, the error says the reason."""

    def mark(function: F) -> F:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return skip(function)

    return mark
