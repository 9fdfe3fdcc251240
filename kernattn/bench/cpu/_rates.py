"""The rates of this machine's cores: products and exponentials in cache, and copies from memory to memory."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from kernattn._parallel import share, threads
from kernattn.bench._races import Clock
from kernattn.bench._rates import Rates, turns
from kernattn.bench._sizes import Sizes
from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.elementary import exponential
from kernattn.ops._numba.products import FULL, product

__all__ = ["measure_rates"]

TILE = 64
LOOPS = 400


@compiled
def _tiles(a, b, c, loops):  # type: ignore[no-untyped-def]
    for _ in range(loops):
        product(a, 0, TILE, 1, b, 0, TILE, c, 0, TILE, TILE, TILE, TILE, True, FULL)


@compiled
def _exponentials(x, y, loops):  # type: ignore[no-untyped-def]
    for _ in range(loops):
        for i in range(x.size):
            y[i] = exponential(x[i])  # type: ignore[no-untyped-call]


def measure_rates(sizes: Sizes, clock: Clock) -> Rates:
    """Measure 64^3 products and exponentials on all threads, and a copy of 128 MiB: medians of several turns."""
    dtype, jobs = np.dtype(sizes.dtype), 4 * threads()

    def tiles() -> None:
        a, b = np.ones(TILE * TILE, dtype), np.ones(TILE * TILE, dtype)
        _tiles(a, b, np.zeros(TILE * TILE, dtype), LOOPS)

    def exponentials() -> None:
        x = np.linspace(-5.0, 1.0, TILE * TILE).astype(dtype)
        _exponentials(x, np.empty_like(x), LOOPS)

    def seconds(run: Callable[[], None]) -> float:
        return median(turns(run, clock, 7))

    source = np.ones(2**25, np.float32)
    target = np.empty_like(source)
    return Rates(
        flops=jobs * LOOPS * 2 * TILE**3 / seconds(_on_every_thread(tiles, jobs)),
        functions=jobs * LOOPS * TILE**2 / seconds(_on_every_thread(exponentials, jobs)),
        bytes=2 * source.nbytes / seconds(lambda: np.copyto(target, source)),
    )


def _on_every_thread(work: Callable[[], None], jobs: int) -> Callable[[], None]:
    def slab(low: int, high: int) -> None:
        for _ in range(low, high):
            work()

    return lambda: share(slab, jobs, 1.0)
