"""How every loop of the package is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending

__all__ = ["EXACT", "FASTMATH", "compiled", "compiled_exactly", "intrinsic", "overload"]

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered; infinities and NaN keep their meaning."""

EXACT = {"nsz", "contract"}
"""For code whose rounding is designed: (x + c) - c must stay as it is."""

intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the interpreter lock, cached on disk; division by zero as in IEEE 754."""
    result: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FASTMATH)(loop)
    return result


def compiled_exactly(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `compiled` does, for code whose rounding is designed."""
    result: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=EXACT)(loop)
    return result
