"""The clock of the host, and what a turn waits for there."""

from __future__ import annotations

from time import perf_counter, sleep

from kernattn.bench._races import Call

__all__ = ["HostClock"]

SETTLE = 0.05  # seconds between turns: the threads of BLAS and OpenMP go on spinning after a call, on everyone's cores
WAKE = 0.02  # seconds of uncounted calls: cores that slept are slow, or share what they should not, for milliseconds


class HostClock:
    """Seconds of `perf_counter`."""

    turn = 2e-3

    def settle(self, call: Call) -> None:
        """Let the machine settle, then call until it is awake."""
        sleep(SETTLE)
        start = perf_counter()
        call()
        while perf_counter() - start < WAKE:
            call()

    def mark(self) -> float:
        """Return the time."""
        return perf_counter()

    def seconds(self, start: float, stop: float) -> float:
        """Return the difference."""
        return stop - start
