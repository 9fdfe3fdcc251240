"""What shapes tell, kept for the next call of one form while it is small; many heads have a new table each time."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

FORMS = 64
"""So many forms of calls are kept for each kind of table."""

SMALL = 1 << 18
"""A table of so many bytes is kept, no larger one."""

P = ParamSpec("P")
T = TypeVar("T")


def keep_while_small(make: Callable[P, T]) -> Callable[P, T]:
    """Keep what a function of hashable positional arguments returns, where its arrays are small."""
    kept: dict[tuple[Hashable, ...], T] = {}

    @wraps(make)
    def look_up(*form: P.args, **none: P.kwargs) -> T:
        made = kept.get(form)
        if made is None:
            made = make(*form, **none)
            if _nbytes(made) <= SMALL:
                if len(kept) >= FORMS:
                    kept.clear()
                kept[form] = made
        return made

    return look_up


def _nbytes(value: Any) -> int:
    """Return the bytes of the arrays in a value, a tuple's together."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_nbytes, value)) if isinstance(value, tuple) else 0
