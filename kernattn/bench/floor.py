"""The floor of a case: its arithmetic and its traffic at the rates that this machine shows in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from kernattn._parallel import share, threads
from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.elementary import exponential
from kernattn.ops._numba.products import FULL, product

__all__ = ["Rates", "Work", "measure_rates"]

TILE = 64
LOOPS = 400


@dataclass(frozen=True)
class Work:
    """What a case cannot avoid: multiply-adds count two, transcendental functions one, bytes once in and once out."""

    flops: float = 0.0
    functions: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Per second, on all threads together."""

    flops: float
    functions: float
    bytes: float

    def seconds(self, work: Work) -> float:
        """Return the floor of some work: its parts one after the other."""
        return work.flops / self.flops + work.functions / self.functions + work.bytes / self.bytes


@compiled
def _tiles(a, b, c, loops):  # type: ignore[no-untyped-def]
    for _ in range(loops):
        product(a, 0, TILE, 1, b, 0, TILE, c, 0, TILE, TILE, TILE, TILE, True, FULL)


@compiled
def _exponentials(x, y, loops):  # type: ignore[no-untyped-def]
    for _ in range(loops):
        for i in range(x.size):
            y[i] = exponential(x[i])  # type: ignore[no-untyped-call]


def _best(run: Callable[[], None]) -> float:
    run()
    taken = []
    for _ in range(7):
        start = perf_counter()
        run()
        taken.append(perf_counter() - start)
    return median(taken)


def _on_every_thread(work: Callable[[], None]) -> Callable[[], None]:
    count = threads()

    def slab(low: int, high: int) -> None:
        for _ in range(low, high):
            work()

    return lambda: share(slab, 4 * count, 1.0)


def measure_rates(dtype: Any) -> Rates:
    """Measure 64^3 products and exponentials in cache, and the traffic of a copy from memory to memory."""
    dtype = np.dtype(dtype)
    jobs = 4 * threads()

    def tiles() -> None:
        a, b = np.ones(TILE * TILE, dtype), np.ones(TILE * TILE, dtype)
        _tiles(a, b, np.zeros(TILE * TILE, dtype), LOOPS)

    def exponentials() -> None:
        x = np.linspace(-5.0, 1.0, TILE * TILE).astype(dtype)
        _exponentials(x, np.empty_like(x), LOOPS)

    source = np.ones(2**25, np.float32)
    target = np.empty_like(source)
    return Rates(
        flops=jobs * LOOPS * 2 * TILE**3 / _best(_on_every_thread(tiles)),
        functions=jobs * LOOPS * TILE**2 / _best(_on_every_thread(exponentials)),
        bytes=2 * source.nbytes / _best(lambda: np.copyto(target, source)),
    )
