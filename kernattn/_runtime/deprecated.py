"""Old names of what has been renamed: each works for one version, and warns with the new one."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar
from warnings import warn

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = str(Path(__file__).parents[1]) + os.sep
INSIDE = PACKAGE, np.errstate.__call__.__code__.co_filename
"""Files of calls that no user wrote: flags of NumPy stand around some functions."""


def warn_user(message: str, category: type[Warning] = DeprecationWarning) -> None:
    """Warn at the line of the caller outside of the package: Python hides warnings of old names in libraries."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        frame, level = frame.f_back, level + 1
    warn(message, category, stacklevel=level)


def old_names(
    module: str,
    names: Mapping[str, str | tuple[str, Any]],
    calls: Mapping[str, str] | None = None,
    gone: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for attributes that have another name now, or none.

    `names` maps each old name to the dotted path of what takes its place, such as "kernattn.solvers.kernel_ridge"; or,
    where that is no name, to what users write now and to the old object: ("phi1 + phi2", concatenate).
    `calls` has, by name, what to write where the path is of a function that keeps an old order. `gone` says where to
    find what is no part of the package any more.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            where = f"; it is now {gone[name]}" if gone and name in gone else ""
            raise AttributeError(f"module {module!r} has no attribute {name!r}{where}")
        new = names[name]
        text, *old = (new,) if isinstance(new, str) else new
        warn_user(f"{module}.{name} is now {(calls or {}).get(name, text)}")
        if old:
            return old[0]
        home, _, attribute = text.rpartition(".")
        return getattr(import_module(home), attribute)

    return __getattr__


def old_order(kind: type | tuple[type, ...], name: str) -> Callable[[F], F]:
    """Let a function take the argument `name`, of a class `kind`, in first place, where it stood before."""

    def decorate(function: F) -> F:
        place = list(signature(function).parameters).index(name)

        @wraps(function)
        def call_in_order(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], kind):
                order = ", ".join(list(signature(function).parameters)[: place + 1])
                warn_user(f"{function.__name__}({name}, ...) is now {function.__name__}({order}, ...)")
                first, *rest = args
                if len(rest) < place:
                    kwargs[name] = first
                else:
                    rest.insert(place, first)
                args = tuple(rest)
            return function(*args, **kwargs)

        return call_in_order  # type: ignore[return-value]

    return decorate


def old_arguments(**names: str) -> Callable[[F], F]:
    """Let a function take keywords by their old names: ``old_arguments(rho="shift")``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call_by_new_names(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got {new!r} twice: {old!r} is its old name")
                warn_user(f"{_public_name(function)}({old}=) is now {new}=")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call_by_new_names  # type: ignore[return-value]

    return decorate


def old_positions(*names: str) -> Callable[[F], F]:
    """Let a function take by position what has become a keyword-only option: ``old_positions("confidence")``."""

    def decorate(function: F) -> F:
        kinds = [parameter.kind for parameter in signature(function).parameters.values()]
        count = len(kinds) - kinds.count(Parameter.KEYWORD_ONLY)

        @wraps(function)
        def call_by_keyword(*args: Any, **kwargs: Any) -> Any:
            if not count < len(args) <= count + len(names):
                return function(*args, **kwargs)
            options = dict(zip(names, args[count:], strict=False))
            listed = ", ".join(f"{name}=" for name in options)
            warn_user(f"{function.__name__}() takes {listed} by keyword only")
            return function(*args[:count], **options, **kwargs)

        return call_by_keyword  # type: ignore[return-value]

    return decorate


def _public_name(function: Callable[..., Any]) -> str:
    """Return the name that users call: a method's own, and of a constructor that of its class."""
    owner, _, name = function.__qualname__.rpartition(".")
    return owner.rpartition(".")[2] if name == "__init__" else name


def old_attribute(old: str, new: str) -> Any:
    """Return a property that reads the attribute `new`, and warns."""
    return property(lambda instance: read_old(instance, old, new), doc=f"Old name of `{new}`.")


def read_old(instance: Any, old: str, new: str) -> Any:
    """Return the attribute `new`, and warn whoever reads it by its old name: for a property of a named tuple."""
    warn_user(f"{type(instance).__name__}.{old} is now .{new}")
    return getattr(instance, new)
