"""Races: contestants in alternation, so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping
from functools import partial
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

Call = Callable[[], Any]


class Clock(Protocol):
    """Marks moments on a device."""

    @property
    def turn(self) -> float:
        """Seconds that a turn takes at least: short calls are repeated inside it."""

    @property
    def long(self) -> float:
        """Seconds from which on a call settles the device by itself: it is not made once more for that."""

    def settle(self, call: Call) -> None:
        """Bring the device to the state in which a turn begins."""

    def mark(self) -> Any:
        """Return a mark that the device passes when what was launched before is done."""

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for `stop`; return the time between two marks."""


class Timing(NamedTuple):
    """Seconds per call: the median, and the quartiles around it."""

    median: float
    low: float
    high: float
    turns: int


def race(
    calls: Mapping[str, Call], clock: Clock, rounds: int, seconds: float, rivals: Collection[str] = ()
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Time every contestant, and say why one could not run.

    Turns alternate `rounds` times, or until `seconds` have passed once each had three. A contestant that runs out of
    memory leaves, and so does a rival that raises anything.
    """
    repeats: dict[str, int] = {}
    settling: dict[str, Call] = {}
    failed: dict[str, str] = {}

    def tried(name: str, turn: Call) -> Any:
        """Return what the turn returns, or None where it fails and the contestant leaves."""
        try:
            return turn()
        except Exception as error:
            if name not in rivals and not _of_memory(error):
                raise
            failed[name] = "out of memory" if _of_memory(error) else _in_a_line(error)
            return None

    def settled(call: Call, first: Call, count: int) -> float:
        clock.settle(first)
        return _timed(call, count, clock) / count

    for name, call in calls.items():
        taken = tried(name, partial(settled, call, call, 1))
        if taken is not None:
            repeats[name] = max(1, int(clock.turn / max(taken, 1e-7)))
            settling[name] = call if taken < clock.long else _nothing
    times: dict[str, list[float]] = {name: [] for name in repeats}
    enabled = gc.isenabled()
    gc.disable()
    try:
        begin = clock.mark()
        for turn in range(rounds):
            if turn >= 3 and clock.seconds(begin, clock.mark()) > seconds:
                break
            for name in [name for name in repeats if name not in failed]:
                taken = tried(name, partial(settled, calls[name], settling[name], repeats[name]))
                times[name] += [] if taken is None else [taken]
    finally:
        if enabled:
            gc.enable()
    return {name: _timing(taken) for name, taken in times.items() if name not in failed}, failed


def _nothing() -> None:
    pass


def _of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__


def _in_a_line(error: Exception) -> str:
    """Return what went wrong, of paths the last part."""
    words = str(error).partition("\n")[0].replace("|", "/").split()
    return " ".join([f"{type(error).__name__}:", *(x.rpartition("/")[2] if x.count("/") > 1 else x for x in words)])


def _timed(call: Call, count: int, clock: Clock) -> float:
    start = clock.mark()
    for _ in range(count):
        call()
    return clock.seconds(start, clock.mark())


def _timing(taken: list[float]) -> Timing:
    low, _, high = quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
    return Timing(median(taken), low, high, len(taken))
