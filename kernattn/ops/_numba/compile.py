"""How every loop of the package is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

__all__ = ["EXACT", "FASTMATH", "compiled"]

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered; infinities and NaN keep their meaning."""

EXACT = {"nsz", "contract"}
"""For code whose rounding is designed: (x + c) - c must stay as it is."""

P = ParamSpec("P")
R = TypeVar("R")


def compiled(loop: Callable[P, R]) -> Callable[P, R]:
    """Compile without the interpreter lock, cached on disk; division by zero as in IEEE 754."""
    result: Callable[P, R] = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FASTMATH)(loop)
    return result
