"""Array operations on NumPy's own arrays: no class derived from them takes part, and no flag of the caller's is raised.

Public functions that are more than one call of an op are marked here. What ops do themselves stands beside them.
"""

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

import numpy as np

from kernattn._arrays.namespaces import without_flags

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_REFUSED = np.ma.MaskedArray, np.matrix  # whose masks, and axes, would be lost


def plain(value: Any) -> Any:
    """Return an array of a class derived from NumPy's as NumPy's own, in tuples too; checks refuse masked ones."""
    kind = type(value)
    if kind is np.ndarray:
        return value
    if isinstance(value, tuple):
        return tuple.__new__(kind, [plain(x) for x in value])
    return np.asarray(value) if isinstance(value, np.ndarray) and not isinstance(value, _REFUSED) else value


def on_plain(function: F) -> F:
    """Let a function see NumPy's own arrays, and let numbers that vanish in it raise nothing."""

    @wraps(function)
    @without_flags
    def run(*args: Any, **options: Any) -> Any:
        return function(*map(plain, args), **{name: plain(x) for name, x in options.items()})

    return run  # type: ignore[return-value]


def quiet(kind: type[T]) -> type[T]:
    """Let numbers that vanish in a method or a property of a class raise nothing."""
    for name, member in list(vars(kind).items()):
        if isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(without_flags(member.fget), doc=member.__doc__))
        elif isfunction(member) and (name == "__call__" or not name.startswith("_")):
            setattr(kind, name, without_flags(member))
    return kind
