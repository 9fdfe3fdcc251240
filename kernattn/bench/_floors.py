"""The floor of a call: its arithmetic and its traffic at the rates that the machine shows in the same race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
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


class Gauge(NamedTuple):
    """A call that does nothing but so much of one kind of work, as fast as the machine can."""

    call: Callable[[], Any]
    amount: float


@dataclass(frozen=True)
class Rates:
    """Bytes, flops and functions per second, on the whole device."""

    bytes: float
    flops: float
    functions: float = inf

    def floors(self, work: Work) -> dict[str, float]:
        """Return the fields of a row: the work, the milliseconds of its parts, and these rates.

        Its floor is its traffic beside its arithmetic, the longer of the two; `parts_ms` is one after the other.
        """
        traffic, products = 1e3 * work.bytes / self.bytes, 1e3 * work.flops / self.flops
        functions = 1e3 * work.functions / self.functions
        fields = {"bytes": work.bytes, "flops": work.flops, "functions": work.functions}
        fields |= {"traffic_floor_ms": traffic, "product_floor_ms": products, "function_floor_ms": functions}
        fields |= {"floor_ms": max(traffic, products + functions), "parts_ms": traffic + products + functions}
        fields |= {"copy_bytes_per_second": self.bytes, "product_flops_per_second": self.flops}
        return fields | ({"functions_per_second": self.functions} if isfinite(self.functions) else {})
