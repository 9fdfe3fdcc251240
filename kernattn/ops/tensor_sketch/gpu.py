"""Tensor sketches in CUDA: in one launch where M is a power of two that fits shared memory, by cuFFT elsewhere.

Every sum is made by one thread in a fixed order, so that features are the same in every run.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, dtype_name, namespace
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import upload_once
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of, ceil_div, options, pieces, power_of_two
from kernattn.ops._cuda.sketches import Staging, lists, staging
from kernattn.ops.countsketch.gpu import countsketch
from kernattn.ops.tensor_sketch.order import order, roots
from kernattn.ops.tensor_sketch.reference import amplitudes

LINE = 2048  # features of a block, where a row has fewer
BATCH = 1 << 24  # numbers of count sketches that are in memory at a time, outside the kernel


@dataclass(frozen=True)
class TensorSketchLaunch:
    """One launch of the kernel `tensor_sketch`."""

    defines: tuple[str, ...]
    accumulator: str
    bits: int  # M = 2^(bits + 1)
    warps: int
    blocks: int
    rows: Staging
    shared_bytes: int


def launch(rows: int, d: int, num_features: int, dtype: str, limits: runtime.Limits) -> TensorSketchLaunch | None:
    """Return the launch for `rows` rows (d,); None where M is not a power of two above 1, or does not fit."""
    if num_features < 2 or num_features & (num_features - 1):
        return None
    accumulator = accumulator_of(dtype)
    points = num_features // 2
    line = points + points // 16  # a gap after every 16 points

    def lines(group: int) -> int:
        sizes = (2 * group * line, 2 * group * line, 2 * group * points)
        return pieces(*((size, accumulator) for size in sizes))

    wanted = max(1, min(LINE // num_features, limits.shared_bytes // lines(1)))
    own = staging(rows, d, wanted, accumulator, limits.shared_bytes - lines(wanted))
    shared_bytes = lines(own.group) + own.shared_bytes
    if shared_bytes > limits.shared_bytes:
        return None
    warps = power_of_two(num_features // 256, 8, 16)
    flags = options(INPUT=C_TYPES[dtype], OPERAND=accumulator, SPLIT=0, WARPS=warps)
    blocks = ceil_div(rows, own.group)
    return TensorSketchLaunch(flags, accumulator, points.bit_length() - 1, warps, blocks, own, shared_bytes)


def tensor_sketch(x: Array, index: NDArray[np.int64], weight: Float64, num_features: int, dtype: Any = None) -> Array:
    x = cupy.ascontiguousarray(x)
    rows, d = math.prod(x.shape[:-1]), x.shape[-1]
    real = np.float64 if dtype_name(x) == "float64" else np.float32
    out = cupy.empty((*x.shape[:-1], num_features), dtype=real)
    if rows == 0:
        return _round_to(out, dtype)
    how = launch(rows, d, num_features, dtype_name(x), runtime.limits())
    if how is None:
        _by_transforms(x.reshape(rows, d), index, weight, out.reshape(rows, num_features))
        return _round_to(out, dtype)
    copies, name = len(index), np.dtype(real).name
    own = lists(index, weight, num_features, name)
    turns = upload_once(roots(num_features), name)
    slots = upload_once(_order(num_features), "int32")
    amplitude = real((2 / num_features) ** 0.5 / 2**copies)
    sizes = (np.int64(rows), *(np.int32(i) for i in (d, copies, how.bits, how.rows.group, how.rows.inside)))
    kernel = runtime.Launch(how.defines, (how.blocks,), 32 * how.warps, how.shared_bytes)
    given = (x, own.first, own.column, own.weight, turns, slots)
    kernel.start("tensor_sketch", "tensor_sketch", *given, out, amplitude, *sizes)
    return _round_to(out, dtype)


def _round_to(out: Array, dtype: Any) -> Array:
    return out if dtype is None else namespace(out=out).astype(out, dtype, copy=False)


def _by_transforms(x: Array, index: NDArray[np.int64], weight: Float64, out: Array) -> None:
    """Write the features of rows (n, d) for any M, as many rows at a time as memory allows."""
    num_features = out.shape[-1]
    batch = max(1, BATCH // (len(index) * num_features))
    weights = upload_once(amplitudes(num_features), out.dtype.name)
    columns = upload_once(_columns(num_features), "int32")
    for start in range(0, len(x), batch):
        sketches = countsketch(x[start : start + batch], index, weight, num_features)  # (rows, p, M)
        product = cupy.prod(cupy.fft.rfft(sketches), axis=1)  # (rows, M // 2 + 1)
        out[start : start + batch] = product.view(out.dtype)[:, columns] * weights


@cache
def _order(num_features: int) -> NDArray[np.int64]:
    """Return the frequencies below M / 2 as they are written, 0 first."""
    return np.concatenate([[0], order(num_features)])


@cache
def _columns(num_features: int) -> NDArray[np.int64]:
    """Return where the features are among the real and imaginary parts of all frequencies."""
    ends = [0] if num_features % 2 else [0, num_features]
    pairs = 2 * order(num_features)[:, None] + np.arange(2)
    return np.concatenate([ends, pairs.ravel()])
