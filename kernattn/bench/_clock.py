"""Clocks, and what a turn waits for."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time, sleep
from typing import Any, Protocol

from kernattn._runtime.parallel import threads

Call = Callable[[], Any]

SETTLE = 0.05  # seconds between turns: the threads of BLAS and OpenMP go on spinning after a call, on everyone's cores
WAKE = 0.02  # seconds of uncounted calls: cores that slept are slow, or share what they should not, for milliseconds


class Clock(Protocol):
    """Marks moments on a device.

    A turn takes at least `turn` seconds: short calls are repeated inside it. A call of `long` seconds settles the
    device by itself: it is not made once more for that.
    """

    turn: float
    long: float

    def settle(self, call: Call) -> None:
        """Bring the device to the state in which a turn begins."""

    def mark(self) -> Any:
        """Return a mark that the device passes when what was launched before is done."""

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for `stop`; return the time between two marks."""


class HostClock:
    """Seconds of wall clock, or of CPU time where one thread does all: what others on the machine take is left out.

    A turn begins awake; or asleep, after a rest in which every thread went to sleep, and is then a single call.
    """

    long = 0.25  # a call of which the slow ones are a small part

    def __init__(self, asleep: bool = False) -> None:
        self.asleep = asleep
        self.turn = 0.0 if asleep else 2e-3
        self.name = "CPU time" if threads() == 1 else "wall clock"
        self.mark = process_time if threads() == 1 else perf_counter

    def settle(self, call: Call) -> None:
        """Let the machine settle, then call until it is awake, unless it is to be asleep."""
        sleep(SETTLE)
        start = perf_counter()
        while not self.asleep and perf_counter() - start < WAKE:
            call()

    def seconds(self, start: float, stop: float) -> float:
        """Return the difference."""
        return stop - start
