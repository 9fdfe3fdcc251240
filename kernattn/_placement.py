"""On which core a helping thread wakes: not on its caller's, where Linux may put it when the others look busy.

A virtual core that its host has put to sleep looks busy, so after an idle moment both threads of a loop can share one
core for milliseconds. Helpers are therefore kept off the caller's core while they wake, and free again once they work.
Linux only; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

__all__ = ["keep_off", "set_free"]

FEW = 8  # cores: with more of them, two threads seldom meet on one


@cache
def _sched_getcpu() -> Callable[[], int]:
    function: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return function


def keep_off(native_ids: Iterable[int]) -> frozenset[int] | None:
    """Keep sleeping threads off the caller's core; return the cores for `set_free`, or None where nothing was done."""
    if sys.platform != "linux":
        return None
    with suppress(OSError, AttributeError):  # a sandbox may forbid it, a C library lack it
        allowed = os.sched_getaffinity(0)
        elsewhere = allowed - {_sched_getcpu()()}
        if 0 < len(elsewhere) < min(FEW, len(allowed)):
            for native_id in native_ids:
                os.sched_setaffinity(native_id, elsewhere)
            return frozenset(allowed)
    return None


def set_free(cores: frozenset[int] | None) -> None:
    """Let the calling thread run on all of the cores again."""
    if cores is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
