"""Timing by events of the device: contestants in alternation, each turn several passes over all sets of inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any, Protocol

from kernattn.bench.timing import Timing

__all__ = ["Clock", "EventClock", "captured", "race"]

Pass = Callable[[], Any]
TURN = 5e-3  # seconds that a turn takes at least


class Clock(Protocol):
    """Marks moments on the device."""

    def mark(self) -> Any:
        """Return a mark that the device passes when what was launched before is done."""

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for `stop`; return the time between two marks."""


class EventClock:
    """The clock of CuPy's current stream."""

    def mark(self) -> Any:
        """Record an event."""
        import cupy

        event = cupy.cuda.Event()
        event.record()
        return event

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for the second event."""
        import cupy

        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) / 1e3


def captured(work: Pass) -> Pass:
    """Capture what a pass launches in a CUDA graph; return the pass that replays it. It must have run before."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        work()
        graph = stream.end_capture()
    return lambda: graph.launch(cupy.cuda.get_current_stream())


def race(
    passes: Mapping[str, Pass],
    sets: int,
    clock: Clock,
    rounds: int,
    seconds: float,
    settle: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Time a call of every contestant, and say why one could not run; passes are over `sets` calls.

    Turns alternate `rounds` times, or until `seconds` of measured time once each had three; each begins with `settle`
    and a pass that is not measured. A contestant that runs out of memory leaves.
    """
    repeats: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, work in passes.items():
        settle()
        try:
            work()
            taken = _timed(work, 1, clock)
        except Exception as error:
            if "OutOfMemory" not in type(error).__name__:
                raise
            failed[name] = "out of memory"
            continue
        repeats[name] = max(1, int(TURN / max(taken, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in repeats}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            if turn >= 3 and sum(map(sum, times.values())) > seconds:
                break
            for name, count in repeats.items():
                settle()
                passes[name]()
                times[name].append(_timed(passes[name], count, clock))
    finally:
        if enabled:
            gc.enable()
    return {name: _timing([t / (repeats[name] * sets) for t in taken]) for name, taken in times.items()}, failed


def _timed(work: Pass, count: int, clock: Clock) -> float:
    start = clock.mark()
    for _ in range(count):
        work()
    return clock.seconds(start, clock.mark())


def _timing(taken: list[float]) -> Timing:
    low, _, high = quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
    return Timing(median(taken), low, high, len(taken))
