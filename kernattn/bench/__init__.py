"""Races: callables of one's own in turns, beside the floor of what none of them can avoid.

The cases that this library is judged by are no part of the package: they live in its repository, in docs/bench.
"""

from kernattn._runtime.deprecated import old_names as _old_names
from kernattn.bench._clock import Clock, HostClock
from kernattn.bench._floors import Gauge, Rates, Work
from kernattn.bench._race import race
from kernattn.bench._tables import Column, table

__all__ = ["Clock", "Column", "Gauge", "HostClock", "Rates", "Work", "race", "table"]
_MOVED = "Case", "DEVICES", "Device", "Sizes", "cases", "cpu", "device", "gpu", "write"


def __dir__() -> list[str]:
    return __all__


__getattr__ = _old_names(
    __name__,
    {},
    gone={name: f"bench.{name} of the package in docs/bench of the repository" for name in _MOVED}
    | {"bench": "bench.race_cases(device, ...) of the package in docs/bench of the repository"},
)
