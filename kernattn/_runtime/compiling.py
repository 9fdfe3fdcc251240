"""Compilation speaks: a process that compiles says so once, on stderr, and shows on a terminal that it goes on.

Numba compiles under one lock, so loops begin and end here one at a time; `kernattn.ops._numba.codegen.compile` tells of
both.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

VARIABLE = "KERNATTN_QUIET"
COMPILES = (
    "kernattn: compiling loops for this machine, {seconds} s each when it is idle. {kept} Run `kernattn warmup` or "
    "call kernattn.warmup() to compile attention's ahead of time (--gates and --gradients add theirs); set "
    "{variable}=1 to hide this message."
)
SECONDS = "1 to 10"  # `kernattn warmup 2> FILE` writes the seconds of each loop
KEPT = "Later processes load them from disk."
LOST = "They cannot be kept, because no cache directory is writable: set NUMBA_CACHE_DIR to one."
TICK = 0.5  # seconds
COLUMNS = 80  # of a terminal that does not say


class _Line:
    """A line of a terminal that counts seconds until it is erased; elsewhere one that is written at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._begun, self._done = text, perf_counter(), Event()
        self._thread: Thread | None = None
        if terminal():
            self._thread = Thread(target=self._count, name="kernattn tells", daemon=True)
            self._thread.start()

    def __str__(self) -> str:
        return f"{self._text}, {perf_counter() - self._begun:.0f} s"

    def _count(self) -> None:
        columns = _columns()
        _write(f"\r{self}"[:columns])
        while not self._done.wait(TICK):
            _write(f"\r{self}"[:columns])

    def end(self) -> None:
        """Stop, and leave no thread, which a fork could cut off while it writes."""
        self._done.set()
        if self._thread is None:
            _write(f"{self}\n")
        else:
            self._thread.join()
            _write("\r\x1b[K")


class _Teller:
    """What this process says of the loops that it compiles, and the seconds that they took."""

    def __init__(self) -> None:
        self.place = ""  # among the steps of a warmup
        self.seconds = 0.0
        self._begun = 0.0
        self._said = False
        self._progress: bool | None = None
        self._line: _Line | None = None

    @contextmanager
    def showing(self, progress: bool | None) -> Iterator[None]:
        """Show every loop (True), nothing (False), or what befits stderr (None)."""
        before, self._progress = self._progress, progress
        try:
            yield
        finally:
            self._progress, self.place = before, ""

    def expect(self) -> None:
        """Say that loops are going to be compiled if none was ever kept, before Numba is imported to find out."""
        if not self._silent() and find_spec("numba") is not None and _nothing_kept():
            self._say(KEPT)

    def begin(self, loop: str, kept: bool) -> None:
        """Say that a loop is compiled, and whether it will be kept."""
        self._begun = perf_counter()
        if self._silent():
            return
        self._say(KEPT if kept else LOST)
        if self._progress or terminal():
            self._line = _Line(f"kernattn: {self.place}compiling {loop}")

    def end(self) -> None:
        """Say that the loop is compiled."""
        self.seconds += perf_counter() - self._begun
        line, self._line = self._line, None
        if line is not None:
            line.end()

    def _silent(self) -> bool:
        return self._progress is False or os.environ.get(VARIABLE, "0") not in ("", "0")

    def _say(self, kept: str) -> None:
        if not self._said:
            self._said = True
            _write(COMPILES.format(seconds=SECONDS, kept=kept, variable=VARIABLE) + "\n")


teller = _Teller()


def _nothing_kept() -> bool:
    """Whether no loop has left a file where Numba keeps them; False where that cannot be told."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(__file__).parents[1] / "ops"
    return (bool(given) or os.access(folder, os.W_OK)) and next(folder.rglob("*.nbc"), None) is None


def terminal() -> bool:
    """Whether stderr is a terminal."""
    return writable() and sys.stderr.isatty()


def _columns() -> int:
    """How many a line has: a longer one begins a second, which no carriage return takes back."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def writable() -> bool:
    """Whether there is a stderr: a process can be started without one, or close it."""
    return sys.stderr is not None and not sys.stderr.closed


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # a stream that was closed
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
