"""Tensor sketches by Numba, in one go where M is a power of two, by SciPy's transforms of blocks of rows elsewhere."""

from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import rfft

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import vector_length
from kernattn.ops._numba.tiles.layout import accumulation, flat, in_bits, narrow, room, written
from kernattn.ops.countsketch.cpu import countsketch
from kernattn.ops.tensor_sketch.loops import mirrors, sketch_csr, sketch_rows, turns
from kernattn.ops.tensor_sketch.order import roots
from kernattn.ops.tensor_sketch.reference import amplitudes

SECONDS = 1e-9  # of one factor of one feature of one row
BLOCK = 64  # rows whose sketches and spectra stay in cache


def tensor_sketch(x: Array, index: NDArray[np.int64], weight: Float64, num_features: int, dtype: Any = None) -> Array:
    asked, dtype = dtype, accumulation(x)
    out = room((*x.shape[:-1], num_features), asked if in_bits(asked, dtype) else dtype)
    features = out.reshape(-1, num_features)
    if is_sparse(x):
        rows = x.astype(dtype, copy=False)
    else:
        rows = np.ascontiguousarray(x, dtype=dtype).reshape(-1, x.shape[-1])
    write = _by_tiles if num_features >= 4 and num_features & (num_features - 1) == 0 else _by_blocks
    write(rows, index, weight, features)
    return out if asked is None else narrow(out, asked, held=False)


def _by_tiles(rows: Any, index: NDArray[np.int64], weight: Float64, out: NDArray[Any]) -> None:
    """Write the features where M is a power of two."""
    count, points = out.shape
    weight = weight.copy()
    weight[0] *= 0.5 ** len(weight) * (2 / points) ** 0.5  # the spectra come doubled
    dtype = rows.dtype
    into: Any = out.reshape(-1)
    tables = flat(index, np.int64, index.shape), flat(weight, dtype, weight.shape), *_tables(points, dtype)
    if is_sparse(rows):
        given = tuple(flat(part, part.dtype) for part in (rows.data, rows.indices, rows.indptr))
        sketch = sketch_csr
    else:
        sketch, given, into = sketch_rows, (flat(rows, dtype), rows.shape[1]), written(out, dtype)
    fill = partial(sketch, *given, *tables, into, count)
    share(fill, -(-count // vector_length(dtype)), SECONDS * len(index) * out.size)  # a row to a lane


def _by_blocks(rows: Any, index: NDArray[np.int64], weight: Float64, out: NDArray[Any]) -> None:
    """Write the features for any M."""
    count, points = out.shape
    dtype = rows.dtype
    weights = amplitudes(points).astype(dtype)

    def fill(low: int, high: int) -> None:
        room = np.empty((min(BLOCK, high - low), len(index), points), dtype)
        for start in range(low, high, BLOCK):
            stop = min(high, start + BLOCK)
            sketches = countsketch(rows[start:stop], index, weight, points, room[: stop - start])
            spectra = rfft(sketches)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a thread has its own
                for i in range(1, len(index)):
                    spectra[:, 0] *= spectra[:, i]
            parts = spectra[:, 0].view(dtype)  # (rows, 2 (M // 2 + 1))
            if points % 2:
                parts[:, 1] = parts[:, 0]  # frequency 0 has an imaginary part of 0, which is left out
                parts = parts[:, 1:]
            else:
                parts[:, 1] = parts[:, points]
            if out.dtype == dtype:
                np.multiply(parts[:, :points], weights, out=out[start:stop])
            else:
                out[start:stop] = narrow(parts[:, :points] * weights, out.dtype, held=False)

    share(fill, count, 3 * SECONDS * len(index) * out.size)


@cache
def _tables(features: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Return roots of unity, pairs of frequencies, and how these turn, of transforms for so many features."""
    points = features // 2
    pairs, root = mirrors(points), roots(features)
    turn = flat(root[pairs[:, 0]], dtype)
    return flat(turns(points), dtype), flat(pairs[:, 1:], np.int64, (-1, 2)), turn, flat(root, dtype, root.shape)
