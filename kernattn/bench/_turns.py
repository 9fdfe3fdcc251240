"""Contestants in alternation, so that a machine that slows down slows all of them."""

import gc
from collections.abc import Callable, Collection, Mapping
from functools import partial

from kernattn.bench._clock import Call, Clock


def take_turns(
    calls: Mapping[str, Call], clock: Clock, rounds: int, seconds: float, rivals: Collection[str] = ()
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the seconds of a call in every turn of each contestant, and why one could not run.

    Turns alternate `rounds` times, or until `seconds` have passed once each had three. A contestant that runs out of
    memory leaves, and so does a rival that raises anything.
    """
    repeats: dict[str, int] = {}
    settling: dict[str, Call] = {}
    failed: dict[str, str] = {}

    def attempt(name: str, turn: Callable[[], float]) -> float | None:
        """Return the seconds of a turn, or None where it fails and the contestant leaves."""
        try:
            return turn()
        except Exception as error:
            if name not in rivals and not _is_of_memory(error):
                raise
            failed[name] = "out of memory" if _is_of_memory(error) else _in_a_line(error)
            return None

    def time(call: Call, first: Call, count: int) -> float:
        clock.settle(first)
        start = clock.mark()
        for _ in range(count):
            call()
        return clock.seconds(start, clock.mark()) / count

    for name, call in calls.items():
        taken = attempt(name, partial(time, call, call, 1))
        if taken is not None:
            repeats[name] = max(1, int(clock.turn / max(taken, 1e-7)))
            settling[name] = call if taken < clock.long else lambda: None
    times: dict[str, list[float]] = {name: [] for name in repeats}
    enabled = gc.isenabled()
    gc.disable()
    try:
        begin = clock.mark()
        for turn in range(rounds):
            if turn >= 3 and clock.seconds(begin, clock.mark()) > seconds:
                break
            for name in [name for name in repeats if name not in failed]:
                taken = attempt(name, partial(time, calls[name], settling[name], repeats[name]))
                times[name] += [] if taken is None else [taken]
    finally:
        if enabled:
            gc.enable()
    return {name: taken for name, taken in times.items() if name not in failed}, failed


def _is_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__


def _in_a_line(error: Exception) -> str:
    """Return the text of an error, of paths the last part."""
    words = str(error).partition("\n")[0].replace("|", "/").split()
    return " ".join([f"{type(error).__name__}:", *(x.rpartition("/")[2] if x.count("/") > 1 else x for x in words)])
