"""Peers of features, by torch, in blocks of rows that stay in cache; our frequencies, buckets and signs are theirs.

Each of as many threads as ours takes its rows alone: torch's own threads share a block, and on two of them torch took
twice as long as on one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.cpu.peers import torch_of
from kernattn._arrays.namespaces import Float64
from kernattn._runtime.affinity import keep_off
from kernattn._runtime.parallel import threads
from kernattn.bench._clock import Call

WAVES, SKETCHES = 512, 64  # rows of a block


def _by_rows(torch: Any, n: int, out: Callable[[], Any], take: Callable[[Any, int, int], None], block: int) -> Call:
    """Return what makes an array and lets every thread take its part of the n rows, block by block."""
    count = threads()
    step, pool = -(-n // count), ThreadPoolExecutor(max(1, count - 1))

    def part(array: Any, begin: int) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            for low in range(begin, min(n, begin + step), block):
                take(array, low, min(n, begin + step, low + block))

    def call() -> Any:
        with torch.inference_mode():
            array = out()
        keep_off(each.native_id for each in pool._threads if each.native_id is not None)
        others = [pool.submit(part, array, begin) for begin in range(step, n, step)]
        part(array, 0)
        for other in others:
            other.result()
        return array

    return call


def torch_waves(x: Any, omega: Float64) -> Call:
    """Cosines and sines of omega x, (m / 2, d), side by side: one product half as wide as the features."""
    torch, (x, columns) = torch_of(x, np.ascontiguousarray(omega.T, x.dtype))
    half = columns.shape[1]

    def take(out: Any, low: int, high: int) -> None:
        rows, arguments = out[low:high], x[low:high] @ columns
        torch.cos(arguments, out=rows[:, :half])
        torch.sin(arguments, out=rows[:, half:])
        rows.mul_(half**-0.5)

    return _by_rows(torch, len(x), lambda: torch.empty(len(x), 2 * half, dtype=x.dtype), take, WAVES)


def torch_sketch(x: Any, index: NDArray[np.int64], sign: NDArray[np.int8], buckets: int) -> Call:
    """Tensor sketches of rows (n, d) and a 1 after each, in the Fourier basis as ours: no inverse transform is taken.

    Sketches are (p, d + 1) buckets, an even number, and signs. Of a row's spectrum the parts of frequency f stand at
    2 f and 2 f + 1; those at 0 and 1 are the first and the last frequency's, which are real. The spectrum's weight is
    one of the first sketch's signs; the constant's bucket is filled before a block's rows are added.
    """
    weights = sign.astype(x.dtype)
    weights[0] *= (2 / buckets) ** 0.5
    torch, (x, index, weights) = torch_of(x, np.array(index), weights)
    half, sketches = buckets // 2, []
    for at, weight in zip(index, weights, strict=True):
        constant = torch.zeros(buckets, dtype=x.dtype)
        constant[at[-1]] = weight[-1]
        sketches.append((at[:-1], weight[:-1], constant))

    def take(out: Any, low: int, high: int) -> None:
        rows, block = x[low:high], out[low:high].view(-1, half, 2)
        spectra = [
            torch.fft.rfft(constant.repeat(len(rows), 1).index_add_(1, at, rows * weight))
            for at, weight, constant in sketches
        ]
        product = spectra[0]
        for each in spectra[1:]:
            product.mul_(each)
        block.copy_(torch.view_as_real(product[:, :half]))
        block[:, 0, 1] = product[:, half].real
        block[:, 0].mul_(0.5**0.5)

    return _by_rows(torch, len(x), lambda: torch.empty(len(x), buckets, dtype=x.dtype), take, SKETCHES)
