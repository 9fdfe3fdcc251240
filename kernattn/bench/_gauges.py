"""Gauges of this machine's cores: products and exponentials in cache, and a case's traffic where its arrays lie."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, threads
from kernattn.bench._floors import Gauge, Work
from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.elementary import decayed
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load, store
from kernattn.ops._numba.tiles.layout import room
from kernattn.ops._numba.tiles.products import FULL, product

TILE = 64
LOOPS = 400
SLABS = 4  # for each thread
ENOUGH = 2**25  # bytes that a gauge of traffic moves at least, in several passes where the case has fewer
BLOCK = 2**15  # bytes that are read, then written
STRIDE = 64  # numbers of a step of the gauges of traffic: four vectors, at most


@compiled
def _multiply_tiles(a, b, c, loops):
    for _ in range(loops):
        product(a, 0, TILE, 1, b, 0, TILE, c, 0, TILE, TILE, TILE, TILE, True, FULL)


@compiled
def _take_exponentials(x, y, loops):
    width = lanes(x)
    for _ in range(loops):
        for i in range(0, x.size, 2 * width):
            store(decayed(load(x, i)), y, i)
            store(decayed(load(x, i + width)), y, i + width)


@compiled
def _move(source, target, low, high, blocks, passes):
    """Read the blocks low to high of one array and write those of another, both cut in as many."""
    width = lanes(source)
    read, written = source.size // blocks // STRIDE * STRIDE, target.size // blocks // STRIDE * STRIDE
    for _ in range(passes):
        for block in range(low, high):
            a = b = c = d = load(source, 0)
            for i in range(block * read, block * read + read, 4 * width):
                a, b = a + load(source, i), b + load(source, i + width)
                c, d = c + load(source, i + 2 * width), d + load(source, i + 3 * width)
            a = (a + b) + (c + d)
            store(a, target, block * written)  # also where nothing is to be written: what nobody sees is not read
            for i in range(block * written, block * written + written, 4 * width):
                for j in range(4):
                    store(a, target, i + j * width)


@compiled
def _renew(x, low, high, passes):
    """Write numbers where they were read."""
    width, half = lanes(x), x.dtype.type(0.5)
    for _ in range(passes):
        for i in range(low, high, 2 * width):
            a, b = load(x, i) * half + half, load(x, i + width) * half + half
            store(a, x, i)
            store(b, x, i + width)


def core_gauges(work: Work, dtype: str) -> dict[str, Gauge]:
    """Return 64^3 products and exponentials on all threads, and the traffic of `work` in arrays of its size."""
    jobs = SLABS * threads()
    side = np.ones((jobs, 3, TILE * TILE), dtype)
    falling = np.linspace(-5.0, 0.0, TILE * TILE).astype(dtype)

    def multiply(job: int) -> None:
        a, b, c = side[job]
        c[:] = 0
        _multiply_tiles(a, b, c, LOOPS)

    return {
        "bytes": _traffic(work),
        "functions": Gauge(
            _on_every_thread(lambda job: _take_exponentials(falling, side[job, 0], LOOPS), jobs),
            jobs * LOOPS * float(TILE**2),
        ),
        "flops": Gauge(_on_every_thread(multiply, jobs), jobs * LOOPS * 2.0 * TILE**3),
    }


def _traffic(work: Work) -> Gauge:
    """Return the gauge of bytes that are read and written, in memory or in cache, as arrays of that size lie."""
    parts, passes = threads(), max(1, int(ENOUGH / max(work.bytes, 1.0)))
    if work.in_place:
        x = _numbers(work.written, parts)

        def renew(part: int) -> None:
            _renew(x, x.size // parts * part, x.size // parts * (part + 1), passes)

        return Gauge(_on_every_thread(renew, parts), 2.0 * x.nbytes * passes)
    blocks = parts * max(1, int(work.bytes) // (BLOCK * parts))
    source, target = _numbers(work.bytes - work.written, blocks), _numbers(work.written, blocks)

    def move(part: int) -> None:
        _move(source, target, blocks * part // parts, blocks * (part + 1) // parts, blocks, passes)

    return Gauge(_on_every_thread(move, parts), float(source.nbytes + target.nbytes) * passes)


def _numbers(count: float, parts: int) -> NDArray[np.float32]:
    """Return about so many bytes of numbers, whole steps of them for each part."""
    each = round(count / (4 * STRIDE * parts)) * STRIDE
    numbers = room((max(STRIDE, parts * each),), np.dtype(np.float32))
    numbers[:] = 1.0
    return numbers


def _on_every_thread(work: Callable[[int], None], jobs: int) -> Callable[[], Array]:
    def slab(low: int, high: int) -> None:
        for job in range(low, high):
            work(job)

    return lambda: share(slab, jobs, 1.0)
