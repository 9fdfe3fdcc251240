"""On which cores helping threads run: not on their caller's, where Linux may put them when the others look busy.

A virtual core that its host has put to sleep looks busy, so after an idle moment both threads of a loop can share one
core for milliseconds. Linux only; elsewhere nothing happens.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

FEW = 8  # cores: with more of them, two threads seldom meet on one


def keep_off(native_ids: Iterable[int]) -> None:
    """Let threads run where the caller may, but for the core that it is on."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # a sandbox may forbid it, a C library lack it
        allowed = os.sched_getaffinity(0)
        if len(allowed) <= FEW:
            elsewhere = allowed - {_sched_getcpu()()} or allowed
            for native_id in native_ids:
                os.sched_setaffinity(native_id, elsewhere)


@cache
def _sched_getcpu() -> Callable[[], int]:
    function: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return function
