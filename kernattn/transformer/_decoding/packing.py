"""Weights and maps as the loop reads them: flat arrays, in the order of use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._maps.spec import MapSpec
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.packing import packed_map
from kernattn.transformer._config import Config
from kernattn.transformer._decoding.loops import WIDE
from kernattn.transformer._decoding.rows_loops import ACTIVATIONS
from kernattn.transformer._parts import Params

SINGLE = np.dtype(np.float32)


class Maps(NamedTuple):
    """The maps of all layers: queries' numbers and constants, then keys', and where those of a layer begin."""

    numbers: NDArray[np.int64]
    constants: NDArray[np.float32]
    table: NDArray[np.int64]  # eight for each layer: begin and size of both, of queries and of keys; zeros: exact
    features: list[int]  # 0: exact
    peaks: list[int]


def empty(size: int) -> NDArray[np.float32]:
    """Return zeros that begin at a cache line."""
    memory = np.zeros(size + LINE // 4, SINGLE)
    skip = -memory.ctypes.data % LINE // 4
    return memory[skip : skip + size]


def sizes(config: Config) -> NDArray[np.int64]:
    """Return sizes and choices, as `decode` says."""
    c, columns = config, config.dim if config.output is None else config.vocab
    widths = (c.layers, c.dim, c.heads, c.key_heads, c.head_width, c.hidden_width)
    choices = (ACTIVATIONS.index(c.activation), c.norm == "layer", c.norm_first)
    return np.array([*widths, *choices, columns, c.output is not None], np.int64)


def packed_weights(params: Params, config: Config) -> NDArray[np.float32]:
    """Return all weights in the order of their use."""
    parts = list(_in_order(params, config))
    weights = empty(sum(part.size for part in parts))
    np.concatenate(parts, out=weights)
    return weights


def _in_order(params: Params, config: Config) -> Iterator[NDArray[np.float32]]:
    for i in range(config.layers):
        attention, feed = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        norms = [list(_norm(params, f"{part}.norm")) for part in (attention, feed)]
        if config.norm_first:
            yield from norms[0]
        yield from _linear(params, *(f"{attention}.{part}" for part in "qkv"))
        yield from _linear(params, f"{attention}.out")
        yield from norms[1 if config.norm_first else 0]
        for part in ("gate", "up") if config.activation == "swiglu" else ("up",):
            yield from _linear(params, f"{feed}.{part}")
        yield from _linear(params, f"{feed}.down")
        if not config.norm_first:
            yield from norms[1]
    if config.norm_first:
        yield from _norm(params, "norm")
    if config.output == "tokens":
        yield from _linear(params, "output")
    if config.output == "tied":
        yield from _matrix(params["embed.tokens"].T, None)


def _linear(params: Params, *names: str) -> Iterator[NDArray[np.float32]]:
    """Yield matrices beside each other as one."""
    weights = np.concatenate([params[f"{name}.weight"] for name in names], axis=1)
    biases = [params[f"{name}.bias"] for name in names if f"{name}.bias" in params]
    yield from _matrix(weights, np.concatenate(biases) if biases else None)


def _norm(params: Params, name: str) -> Iterator[NDArray[np.float32]]:
    scale = params[f"{name}.scale"]
    bias = params.get(f"{name}.bias")
    yield _line(scale)
    yield _line(np.zeros_like(scale) if bias is None else bias)


def _matrix(weight: NDArray[Any], bias: NDArray[Any] | None) -> Iterator[NDArray[np.float32]]:
    # a matrix (rows, columns) in panels of WIDE columns, then its bias, of whole panels both
    rows, columns = weight.shape
    padded = np.pad(weight, ((0, 0), (0, -columns % WIDE)))
    yield padded.reshape(rows, -1, WIDE).transpose(1, 0, 2).reshape(-1)
    yield _line(np.zeros(columns) if bias is None else bias)


def _line(values: NDArray[Any]) -> NDArray[np.float32]:
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
    return Maps(np.concatenate(numbers), flat, table.reshape(-1), features, peaks)
