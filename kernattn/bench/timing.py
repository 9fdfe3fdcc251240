"""Timing: contestants in alternation, so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import NamedTuple

__all__ = ["Timing", "race"]

SETTLE = 0.05  # seconds between turns: the threads of BLAS and OpenMP go on spinning after a call, on everyone's cores
WAKE = 0.02  # seconds of uncounted calls: cores that slept are slow, or share what they should not, for milliseconds


class Timing(NamedTuple):
    """Seconds per call: the median, and the quartiles around it."""

    median: float
    low: float
    high: float
    calls: int


def race(contestants: Mapping[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, Timing]:
    """Time every contestant `rounds` times, turn by turn, stopping after `seconds` once each had three turns.

    Before a turn the machine settles, and calls are not counted until it is awake; short calls are repeated inside a
    turn until the clock can resolve them.
    """
    repeats = {}
    for name, call in contestants.items():
        call()
        start = perf_counter()
        call()
        repeats[name] = max(1, int(2e-3 / max(perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    enabled = gc.isenabled()
    gc.disable()
    try:
        begin = perf_counter()
        for turn in range(rounds):
            if turn >= 3 and perf_counter() - begin > seconds:
                break
            for name, call in contestants.items():
                sleep(SETTLE)
                start = perf_counter()
                while perf_counter() - start < WAKE:
                    call()
                start = perf_counter()
                for _ in range(repeats[name]):
                    call()
                times[name].append((perf_counter() - start) / repeats[name])
    finally:
        if enabled:
            gc.enable()
    return {name: _timing(taken) for name, taken in times.items()}


def _timing(taken: list[float]) -> Timing:
    if len(taken) < 2:
        return Timing(taken[0], taken[0], taken[0], len(taken))
    low, _, high = quantiles(taken, n=4, method="inclusive")
    return Timing(median(taken), low, high, len(taken))
