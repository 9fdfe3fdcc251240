"""Old names of what has been renamed: each works for one version, and warns with the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, TypeVar
from warnings import warn

F = TypeVar("F", bound=Callable[..., Any])


def old_names(module: str, names: Mapping[str, str], calls: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for attributes that are found elsewhere now.

    `names` maps each old name to the dotted path of what takes its place, such as "kernattn.solvers.kernel_ridge".
    Where that takes its arguments in another order, the path is of a function that keeps the old one, and `calls` has
    the new call for the warning.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is now {(calls or {}).get(name, names[name])}", DeprecationWarning, stacklevel=2)
        home, _, attribute = names[name].rpartition(".")
        return getattr(import_module(home), attribute)

    return __getattr__


def old_arguments(**names: str) -> Callable[[F], F]:
    """Let a function take keywords by their old names: ``old_arguments(rho="shift")``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def translated(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got {new!r} twice: {old!r} is its old name")
                warn(f"{function.__name__}({old}=) is now {new}=", DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return translated  # type: ignore[return-value]

    return decorate


def old_positions(*names: str) -> Callable[[F], F]:
    """Let a function take by position what has become a keyword-only option: ``old_positions("confidence")``."""

    def decorate(function: F) -> F:
        kinds = [parameter.kind for parameter in signature(function).parameters.values()]
        count = len(kinds) - kinds.count(Parameter.KEYWORD_ONLY)

        @wraps(function)
        def translated(*args: Any, **kwargs: Any) -> Any:
            if not count < len(args) <= count + len(names):
                return function(*args, **kwargs)
            options = dict(zip(names, args[count:], strict=False))
            listed = ", ".join(f"{name}=" for name in options)
            warn(f"{function.__name__}() takes {listed} by keyword only", DeprecationWarning, stacklevel=2)
            return function(*args[:count], **options, **kwargs)

        return translated  # type: ignore[return-value]

    return decorate


def old_order(kind: type, place: int) -> Callable[[F], F]:
    """Let a function take its argument of that kind first, which stands at `place` now, behind arrays."""

    def decorate(function: F) -> F:
        @wraps(function)
        def translated(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], kind):
                name = list(signature(function).parameters)[place]
                warn(f"{function.__name__}() takes arrays first, and then {name}", DeprecationWarning, stacklevel=2)
                if len(args) > place:
                    args = (*args[1 : place + 1], args[0], *args[place + 1 :])
                else:
                    args, kwargs = args[1:], {name: args[0], **kwargs}
            return function(*args, **kwargs)

        return translated  # type: ignore[return-value]

    return decorate


def old_attribute(old: str, new: str) -> Any:
    """Return a property that reads the attribute `new`, and warns."""
    return property(lambda instance: read_old(instance, old, new), doc=f"Old name of `{new}`.")


def read_old(instance: Any, old: str, new: str) -> Any:
    """Return the attribute `new`, and warn whoever reads it by its old name: for a property of a named tuple."""
    warn(f"{type(instance).__name__}.{old} is now .{new}", DeprecationWarning, stacklevel=3)
    return getattr(instance, new)
