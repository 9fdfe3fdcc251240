"""Races: callables of one's own in turns, beside the floor of what none of them can avoid.

The cases that this library is judged by are no part of the package: they live in its repository, in docs/bench.
"""

from kernattn.bench._clock import Clock, HostClock
from kernattn.bench._floors import Gauge, Rates, Work
from kernattn.bench._race import race
from kernattn.bench._tables import Column, table

__all__ = ["Clock", "Column", "Gauge", "HostClock", "Rates", "Work", "race", "table"]


def __dir__() -> list[str]:
    return __all__
