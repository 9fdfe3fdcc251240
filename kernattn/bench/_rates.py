"""The floor of a call: its arithmetic and its traffic at the rates that the machine shows in the same race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Work:
    """What a call cannot avoid: multiply-adds count two, transcendental functions one, bytes once in and once out.

    `written` says how many of the bytes are written, and `in_place` that they are written where they were read.
    """

    bytes: float = 0.0
    flops: float = 0.0
    functions: float = 0.0
    written: float = 0.0
    in_place: bool = False

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.flops + other.flops,
            self.functions + other.functions,
            self.written + other.written,
            self.in_place and other.in_place,
        )


class Gauge(NamedTuple):
    """A call that does nothing but so much of one kind of work, as fast as the machine can."""

    call: Callable[[], Any]
    amount: float


@dataclass(frozen=True)
class Rates:
    """Per second, on the whole device."""

    bytes: float
    flops: float
    functions: float = inf

    def parts(self, work: Work) -> tuple[float, float, float]:
        """Return the seconds of traffic, of products and of functions."""
        return work.bytes / self.bytes, work.flops / self.flops, work.functions / self.functions

    def floor(self, work: Work) -> float:
        """Return the seconds that no call can go below: traffic beside arithmetic, the longer of the two."""
        traffic, products, functions = self.parts(work)
        return max(traffic, products + functions)

    def in_turn(self, work: Work) -> float:
        """Return the seconds of the parts one after the other."""
        return sum(self.parts(work))


def rates_of(gauges: Mapping[str, Gauge], seconds: Mapping[str, float]) -> Rates:
    """Return the rates that gauges named as the fields of `Rates` showed."""
    return Rates(**{name: gauge.amount / seconds[name] for name, gauge in gauges.items()})
