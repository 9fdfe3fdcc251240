"""The floor of a call: its arithmetic and its traffic at the rates that this machine shows in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from kernattn.bench._races import Clock

__all__ = ["Rates", "Work", "turns"]


@dataclass(frozen=True)
class Work:
    """What a call cannot avoid: multiply-adds count two, transcendental functions one, bytes once in and once out."""

    bytes: float = 0.0
    flops: float = 0.0
    functions: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Per second, on the whole device; `overlap` says that traffic and arithmetic run at the same time."""

    bytes: float
    flops: float
    functions: float = inf
    overlap: bool = False

    def parts(self, work: Work) -> tuple[float, float, float]:
        """Return the seconds of traffic, of products and of functions."""
        return work.bytes / self.bytes, work.flops / self.flops, work.functions / self.functions

    def seconds(self, work: Work) -> float:
        """Return the floor: the largest part where they overlap, else their sum."""
        return max(self.parts(work)) if self.overlap else sum(self.parts(work))


def turns(run: Callable[[], Any], clock: Clock, count: int) -> list[float]:
    """Return the seconds of some turns of a call, after two that are not counted."""
    taken = []
    for _ in range(count + 2):
        start = clock.mark()
        run()
        taken.append(clock.seconds(start, clock.mark()))
    return taken[2:]
