"""Weights, maps and memories of all layers as the loop reads them: flat arrays, in the order of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn.ops._numba.packing import packed_map
from kernattn.ops._numba.registers import LINE
from kernattn.ops.decode.loops import KEYS, WIDE
from kernattn.ops.spec import MapSpec

__all__ = ["Maps", "empty", "line", "matrix", "packed_maps", "panelled", "unpanelled"]

SINGLE = np.dtype(np.float32)


class Maps(NamedTuple):
    """The maps of all layers: queries' numbers and constants, then keys', and where those of a layer begin."""

    numbers: NDArray[np.int64]  # flat
    constants: NDArray[np.float32]  # flat
    table: NDArray[np.int64]  # (layers, 8): begin and size of both arrays, of queries and of keys; zeros: exact
    features: list[int]  # 0: exact
    peaks: list[int]


def empty(size: int) -> NDArray[np.float32]:
    """Return zeros that begin at a cache line."""
    memory = np.zeros(size + LINE // 4, SINGLE)
    skip = -memory.ctypes.data % LINE // 4
    return memory[skip : skip + size]


def matrix(weight: NDArray[Any], bias: NDArray[Any] | None) -> list[NDArray[np.float32]]:
    """Return a matrix (rows, columns) in panels of WIDE columns, and its bias, of whole panels both."""
    rows, columns = weight.shape
    padded = np.pad(weight, ((0, 0), (0, -columns % WIDE)))
    panels = padded.reshape(rows, -1, WIDE).transpose(1, 0, 2).reshape(-1)
    return [panels, line(np.zeros(columns) if bias is None else bias)]


def line(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return numbers, of whole panels' width."""
    return np.pad(values, (0, -len(values) % WIDE)).astype(np.float32)


def packed_maps(specs: Sequence[tuple[MapSpec, MapSpec] | None], dim: int) -> Maps:
    """Return the maps (queries', keys') of layers; None stands for exact attention."""
    table = np.zeros((len(specs), 8), np.int64)
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    constants: list[NDArray[Any]] = [np.zeros(0, SINGLE)]
    features, peaks = [0] * len(specs), [0] * len(specs)
    begins = [0, 0]
    for layer, pair in enumerate(specs):
        if pair is None:
            continue
        for side, spec in enumerate(pair):
            phi = packed_map(spec, SINGLE, dim)
            features[layer] = phi.features
            peaks[layer] = phi.features if phi.kind.per_feature else 1
            for which, (array, kept) in enumerate(zip(phi.arrays, (numbers, constants), strict=True)):
                table[layer, 4 * side + 2 * which : 4 * side + 2 * which + 2] = begins[which], array.size
                whole = np.pad(array, (0, -array.size % (LINE // 4)))
                kept.append(whole)
                begins[which] += whole.size
    flat = empty(begins[1])
    flat[:] = np.concatenate(constants)
    return Maps(np.concatenate(numbers), flat, table, features, peaks)


def panelled(keys: NDArray[Any]) -> NDArray[np.float32]:
    """Return keys (heads, n, d), n in whole panels, as (heads, n / KEYS, d, KEYS)."""
    heads, n, d = keys.shape
    return np.ascontiguousarray(keys.reshape(heads, n // KEYS, KEYS, d).transpose(0, 1, 3, 2), SINGLE)


def unpanelled(panels: NDArray[Any]) -> NDArray[np.float32]:
    """Return what `panelled` was given."""
    heads, count, d, _ = panels.shape
    return panels.transpose(0, 1, 3, 2).reshape(heads, count * KEYS, d)
