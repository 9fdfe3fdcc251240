"""How every loop of the package is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending

__all__ = ["EXACT", "FASTMATH", "compiled", "inner", "inner_exact", "intrinsic", "overload"]

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered; infinities and NaN keep their meaning."""

EXACT = {"nsz", "contract"}
"""For code whose rounding is designed: (x + c) - c must stay as it is."""

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that Python calls: no interpreter lock, cached on disk, division by zero as in IEEE 754."""
    result: Callable[..., Any] = numba.njit(fastmath=FASTMATH, **_OPTIONS)(loop)
    return result


def inner(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of a loop, which compiled code alone calls."""
    result: Callable[..., Any] = numba.njit(fastmath=FASTMATH, **_OPTIONS, **_NO_WRAPPERS)(loop)
    return result


def inner_exact(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of a loop whose rounding is designed."""
    result: Callable[..., Any] = numba.njit(fastmath=EXACT, **_OPTIONS, **_NO_WRAPPERS)(loop)
    return result
