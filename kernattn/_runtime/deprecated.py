"""Old names of what has been renamed: each works for one version, and warns with the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar
from warnings import warn

F = TypeVar("F", bound=Callable[..., Any])


def old_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for attributes that are found elsewhere now.

    `names` maps each old name to the dotted path of what takes its place, such as "kernattn.solvers.kernel_ridge".
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is now {names[name]}", DeprecationWarning, stacklevel=2)
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
