"""How every loop of the package is compiled, kept on disk and loaded, and when a kept one is out of date."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

from kernattn._fork import kept_whole
from kernattn.ops._numba.parts import Part

__all__ = ["EXACT", "FASTMATH", "OPTIONS", "LoopCache", "compiled", "inner", "inner_exact", "intrinsic", "overload"]

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered; infinities and NaN keep their meaning."""

EXACT = {"nsz", "contract"}
"""For code whose rounding is designed: (x + c) - c must stay as it is."""

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""No interpreter lock, and division by zero as in IEEE 754."""

PARTS = ("_numba/*.py", "*/*loops.py", "ends.py", "kinds.py")
"""Where code stands that loops of other files compile, seen from `kernattn/ops`."""

intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload

kept_whole(global_compiler_lock)


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that Python calls, and keep it on disk."""
    result: Any = numba.njit(fastmath=FASTMATH, **OPTIONS)(loop)
    with suppress(RuntimeError):  # there is no directory that a cache could be written to
        result._cache = LoopCache(loop)
    return result  # type: ignore[no-any-return]


def inner(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of a loop, which compiled code alone calls."""
    return Part(loop, fastmath=FASTMATH, **OPTIONS)


def inner_exact(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of a loop whose rounding is designed."""
    return Part(loop, fastmath=EXACT, **OPTIONS)


def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Return the state of all files whose code, or whose numbers, are compiled into loops elsewhere."""
    ops = Path(__file__).parents[1]
    files = sorted(file for parts in PARTS for file in ops.glob(parts))
    return tuple((str(file.relative_to(ops)), file.stat().st_mtime_ns, file.stat().st_size) for file in files)


_PARTS = _stamp()


class LoopCache(FunctionCache):  # type: ignore[misc]
    """What is kept of a loop, out of date when any of its possible parts is; Numba looks at the loop's own file only.

    The stamp is put beside Numba's version, which is read before the rest: that may name types which are no more.
    """

    def __init__(self, loop: Callable[..., Any]) -> None:
        super().__init__(loop)
        stamp = (self._impl.locator.get_source_stamp(), _PARTS)
        self._cache_file = IndexDataCacheFile(self.cache_path, self._impl.filename_base, stamp)
        self._cache_file._version = (self._cache_file._version, stamp)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load a loop whole: an interrupt amid Numba's tables would leave them closed for good."""
        with _interrupts_wait():
            return super().load_overload(signature, target)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let an interrupt (SIGINT) wait until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            signal.raise_signal(signal.SIGINT)
