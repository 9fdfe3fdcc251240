"""What `torch.autocast` asks of arguments, and of functions that choose the dtypes of their array operations."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from kernattn._arrays.plain import plain

KEPT = ("near_bias",)  # arguments of a dtype of their own, which the sums that they enter read as it is


def cast(torch: Any, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return tensors in the dtype of autocast where that is on for their device; float64 and integers stay."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors
    )


def cast_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function choose the dtypes of its array operations: autocast casts its tensors, and nothing inside."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        args, options = tuple(map(plain, args)), {name: plain(x) for name, x in options.items()}
        torch = sys.modules.get("torch")
        if torch is None or not torch._C._is_any_autocast_enabled():
            return function(*args, **options)
        kinds = [x.device.type for x in (*args, *options.values()) if torch.is_tensor(x)]
        if not kinds:
            return function(*args, **options)
        given = [cast(torch, (x,))[0] if torch.is_tensor(x) else x for x in args]
        named = {
            name: cast(torch, (x,))[0] if torch.is_tensor(x) and name not in KEPT else x for name, x in options.items()
        }
        with torch.autocast(kinds[0], enabled=False):
            return function(*given, **named)

    return run


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let array operations on states keep their dtypes under autocast."""

    @wraps(function)
    def run(*states: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not torch._C._is_any_autocast_enabled() or not torch.is_tensor(states[0].s):
            return function(*states)
        with torch.autocast(states[0].s.device.type, enabled=False):
            return function(*states)

    return run
