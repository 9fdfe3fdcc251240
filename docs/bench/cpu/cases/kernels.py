"""Exact kernel matrices and their products, against scikit-learn's, and the fewest passes of NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.cpu import kernel_peers as others
from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.kernels import Gaussian, Kernel, Laplacian, Polynomial


@dataclass(frozen=True)
class Pair:
    """A kernel for rows of d numbers, its peers of x and y; flops and functions of an entry."""

    kernel: Callable[[int], Kernel]
    peers: Callable[[Any, Any], dict[str, Call]]
    flops: Callable[[int], float]
    functions: float


KERNELS = {
    "gaussian": Pair(lambda d: Gaussian(d**0.5), others.gaussian, lambda d: 2.0 * d, 1.0),
    "laplacian": Pair(Laplacian, others.laplacian, lambda d: 3.0 * d, 1.0),
    "polynomial": Pair(
        lambda d: Polynomial(3, gamma=1 / d, coef0=1.0), others.polynomial, lambda d: 2.0 * d + 2.0, 0.0
    ),
}


def matrix(o: Sizes, pair: Pair) -> Race:
    """A kernel matrix of n and n rows of d numbers."""
    peers.limit_blas()
    x, y = normal(o, *2 * [(o.n, o.dim)])
    calls = {"ours": partial(pair.kernel(o.dim), x, y), **pair.peers(x, y)}
    entries, written = float(o.n) ** 2, float(o.n) ** 2 * x.itemsize
    work = Work(2.0 * x.nbytes + written, entries * pair.flops(o.dim), entries * pair.functions, written=written)
    return Race(calls, work)


def multiplied(o: Sizes, columns: int, symmetric: bool = False) -> Race:
    """A Gaussian kernel matrix of n and n rows of d numbers times columns, in blocks."""
    peers.limit_blas()
    x, y, v = normal(o, *2 * [(o.n, o.dim)], (o.n, columns))
    y = x if symmetric else y
    calls = {
        "ours": partial(Gaussian(o.dim**0.5).matmul, x, None if symmetric else y, v),
        **others.gaussian_products(x, y, v),
    }
    entries = float(o.n) ** 2
    evaluated = entries / 2 if symmetric else entries
    flops = 2.0 * o.dim * evaluated + 2.0 * columns * entries
    return Race(calls, Work(2.0 * x.nbytes + 2.0 * v.nbytes, flops, evaluated))
