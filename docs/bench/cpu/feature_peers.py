"""Peers of features, by torch, in blocks of rows that stay in cache; our frequencies, buckets and signs are theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.cpu.peers import torch_of
from kernattn._arrays.namespaces import Float64
from kernattn.bench._clock import Call

WAVES, SKETCHES = 128, 64  # rows of a block


def torch_waves(x: Any, omega: Float64) -> Call:
    """Cosines and sines of omega x, (m / 2, d), side by side: one product half as wide as the features."""
    torch, (x, columns) = torch_of(x, np.ascontiguousarray(omega.T, x.dtype))
    half = columns.shape[1]

    def call() -> Any:
        out = torch.empty(x.shape[0], 2 * half, dtype=x.dtype)
        for low in range(0, x.shape[0], WAVES):
            rows = out[low : low + WAVES]
            arguments = x[low : low + WAVES] @ columns
            torch.cos(arguments, out=rows[:, :half])
            torch.sin(arguments, out=rows[:, half:])
            rows.mul_(half**-0.5)
        return out

    return torch.inference_mode()(call)


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

    def call() -> Any:
        out = torch.empty(x.shape[0], half, 2, dtype=x.dtype)
        for low in range(0, x.shape[0], SKETCHES):
            rows = x[low : low + SKETCHES]
            spectra = [
                torch.fft.rfft(constant.repeat(len(rows), 1).index_add_(1, at, rows * weight))
                for at, weight, constant in sketches
            ]
            product = spectra[0]
            for each in spectra[1:]:
                product.mul_(each)
            block = out[low : low + SKETCHES]
            block.copy_(torch.view_as_real(product[:, :half]))
            block[:, 0, 1] = product[:, half].real
            block[:, 0].mul_(0.5**0.5)
        return out.view(x.shape[0], buckets)

    return torch.inference_mode()(call)
