"""How every loop of the package is compiled, and when a compiled one is out of date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

from kernattn._fork import kept_whole
from kernattn.ops._numba.parts import Part

__all__ = ["EXACT", "FASTMATH", "OPTIONS", "compiled", "inner", "inner_exact", "intrinsic", "overload"]

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
    try:
        result: Any = numba.njit(cache=True, fastmath=FASTMATH, **OPTIONS)(loop)
    except RuntimeError:  # there is no directory that a cache could be written to
        result = numba.njit(fastmath=FASTMATH, **OPTIONS)(loop)
    else:
        _date(result)
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


def _date(dispatcher: Any) -> None:
    """Let a cached loop be out of date when any of its possible parts is; Numba looks at the loop's own file only.

    The stamp is put beside Numba's version, which is read before the rest: that may name types which are no more.
    """
    cache = dispatcher._cache
    stamp = (cache._impl.locator.get_source_stamp(), _PARTS)
    file = IndexDataCacheFile(cache.cache_path, cache._impl.filename_base, stamp)
    file._version = (file._version, stamp)
    cache._cache_file = file
