"""How every loop of the package is compiled, kept on disk and loaded, and when a kept one is out of date."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core import event
from numba.core.caching import FunctionCache, NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from kernattn._runtime.compiling import teller
from kernattn._runtime.fork import make_forks_wait_for
from kernattn.ops._numba.codegen.parts import Part
from kernattn.ops._numba.codegen.store import Store

FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered; infinities and NaN keep their meaning."""

EXACT = {"nsz", "contract"}
"""For code whose rounding is designed: (x + c) - c must stay as it is."""

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""No interpreter lock, and division by zero as in IEEE 754."""

PARTS = "ops/_numba/**/*.py", "_sums/limits.py", "_maps/kinds.py", "ops/*/*loops.py"
"""Where code stands that loops of other files compile, seen from `kernattn`."""

intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload

make_forks_wait_for(global_compiler_lock)


def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that Python calls, and keep it on disk."""
    return Loop(loop, targetoptions={"nopython": True, "fastmath": FASTMATH, **OPTIONS})


def inner(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of loops, which compiled code alone calls."""
    return Part(loop, fastmath=FASTMATH, forceinline=False, **OPTIONS)  # else it would inherit that of a phase


def phase(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a phase of one loop, which has a name for its reader: the code stands in the loop, no call is made.

    Handing over some thirty arrays would take as long as some of the products of a chunk.
    """
    return Part(loop, fastmath=FASTMATH, forceinline=True, **OPTIONS)


def inner_exact(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of loops whose rounding is designed."""
    return Part(loop, fastmath=EXACT, forceinline=False, **OPTIONS)


def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Return the state of all files whose code, or whose numbers, are compiled into loops elsewhere."""
    package = Path(__file__).parents[3]
    files = sorted(file for parts in PARTS for file in package.glob(parts))
    return tuple((str(file.relative_to(package)), file.stat().st_mtime_ns, file.stat().st_size) for file in files)


_PARTS = _stamp()


class Loop(CPUDispatcher):  # type: ignore[misc]
    """A loop that Python calls, compiled or loaded in a thread that no interrupt reaches.

    An interrupt comes to the main thread, wherever it is: within Numba it can leave a lock that nobody opens, or tables
    that are read by half.
    """

    def __init__(self, loop: Callable[..., Any], **options: Any) -> None:
        super().__init__(loop, **options)
        with suppress(RuntimeError):  # there is no directory that a cache could be written to
            self._cache = LoopCache(loop)

    def _compile_for_args(self, *args: Any, **none: Any) -> Any:
        compiles = super()._compile_for_args
        if threading.current_thread() is not threading.main_thread():
            return compiles(*args, **none)
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(compiles(*args, **none))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=work, name="kernattn compiles").start()
        return done.result()


class LoopCache(FunctionCache):  # type: ignore[misc]
    """What is kept of a loop, out of date when any of its possible parts is; Numba looks at its own file alone."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        super().__init__(loop)
        stamp = (numba.__version__, self._impl.locator.get_source_stamp(), _PARTS)
        self._cache_file = Store(self.cache_path, self._impl.filename_base, stamp)


class _Aloud(event.Listener):  # type: ignore[misc]
    """Tells of the loops that are compiled; those that are loaded, and all other functions, make no sound."""

    def on_start(self, event: Any) -> None:
        """Begin."""
        loop = event.data["dispatcher"]
        if isinstance(loop, Loop):
            teller.begin(loop.__name__, not isinstance(loop._cache, NullCache))

    def on_end(self, event: Any) -> None:
        """End."""
        if isinstance(event.data["dispatcher"], Loop):
            teller.end()


event.register("numba:compile", _Aloud())
