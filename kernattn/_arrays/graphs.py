"""What `torch.compile` makes of the functions of the core: calls of their namesakes at the edge, and no graph breaks.

The compiler asks functions for attributes. Nothing is imported here, and nothing is wrapped: outside of a graph these
functions are what they were.
"""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from kernattn._arrays.hooks import LOADED, edge

F = TypeVar("F", bound=Callable[..., Any])
LEFT_OUT: list[CodeType] = []
"""Code of functions that compute on the host, of which the compiler is still to be told."""


def in_a_graph(function: F) -> F:
    """Let a function run, as it is, while a graph is made; what it returns is a constant there."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@in_a_graph
def _load() -> bool:
    edge("torch")
    edge("graphs")
    return True


def traced_as(namesake: Callable[..., Any]) -> Callable[[F], F]:
    """Let graphs call another function."""

    def mark(function: F) -> F:
        function._torchdynamo_inline = namesake  # type: ignore[attr-defined]
        return function

    return mark


def _compiled_as(namesake: Callable[..., Any]) -> Callable[[F], F]:
    """Let graphs call another function, and begin with it where this one is compiled itself; methods would lose self.

    What is compiled is kept by code, so each function has code of its own.
    """

    def mark(function: F) -> F:
        namesake.__code__ = namesake.__code__.replace(co_name=function.__name__)
        function._torchdynamo_orig_callable = namesake  # type: ignore[attr-defined]
        function._torchdynamo_wrapper_id = id(function)  # type: ignore[attr-defined]
        return traced_as(namesake)(function)

    return mark


def query(phi: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the namesake of the method: one that closes over a name, the compiler looks for in the method."""
    _load()
    return LOADED["graphs"].query(phi, *args, **kwargs)


def features(phi: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the namesake of a call of the map."""
    _load()
    return LOADED["graphs"].features(phi, *args, **kwargs)


def key(phi: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the namesake of the method."""
    _load()
    return LOADED["graphs"].key(phi, *args, **kwargs)


def traceable(name: str) -> Callable[[F], F]:
    """Let graphs call the namesake of a function at the edge."""

    def namesake(*args: Any, **kwargs: Any) -> Any:
        _load()
        return getattr(LOADED["graphs"], name)(*args, **kwargs)

    return _compiled_as(namesake)


def traceable_member(name: str) -> Callable[[F], F]:
    """Let graphs call the namesake of a member of gated attention."""

    def namesake(*args: Any, **kwargs: Any) -> Any:
        _load()
        return LOADED["graphs"].member(name, args, kwargs)

    return _compiled_as(namesake)


def outside_graphs(function: F) -> F:
    """Let graphs end before a function that computes on the host, and trace nothing of what it calls."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "it computes on the host"  # type: ignore[attr-defined]
    LEFT_OUT.append(function.__code__)
    leave_out()
    return function


def leave_out() -> None:
    """Tell the compiler, as soon as PyTorch is there, what to trace none of: frames of such code, and all they call.

    A PyTorch that has no such names traces them, as it does code of others.
    """
    frames = getattr(getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None), "eval_frame", None)
    names = "set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy"
    if not all(hasattr(frames, name) for name in names):
        return
    skip, actions, strategy = (getattr(frames, name) for name in names)
    while LEFT_OUT:
        skip(LEFT_OUT.pop(), strategy(actions.SKIP, actions.SKIP))
