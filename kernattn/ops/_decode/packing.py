"""Weights and maps as the loop reads them: flat arrays, in the order of use."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._maps.spec import MapSpec
from kernattn.ops._decode.experts_loops import Experts
from kernattn.ops._decode.gated_loops import WIDE, Mixer
from kernattn.ops._decode.heads_loops import MAP_COLUMNS, NORMALISED, RANK, SCALE
from kernattn.ops._numba.codegen.halves import BFLOAT16
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.packing import pack_map, zeros_by_lines

SINGLE = np.dtype(np.float32)
UNIT = LINE // SINGLE.itemsize
"""Numbers of a cache line."""

Pair = tuple[NDArray[Any], NDArray[Any] | None]
"""A matrix (rows, columns), or the scale (columns,) of a norm, and its bias (columns,) if there is one.

Matrices may have 16 bits, where they multiply rows."""


class Maps(NamedTuple):
    """The maps of all layers: numbers and constants of all, and where those of each layer lie."""

    numbers: NDArray[np.int64]
    constants: NDArray[np.float32]
    table: NDArray[np.int64]  # (maps, queries and keys, MAP_COLUMNS), flat
    features: list[int]  # of each layer; 0 for exact attention
    peaks: list[int]
    windows: list[int]
    first: list[int]  # where the maps of a layer begin in the table
    own: list[int]  # how many maps heads have, 0 for one that the loop of a token takes


class HeadMaps(NamedTuple):
    """The maps of a layer's heads of keys, or one for all, beside a window of exact attention, of 0 tokens for none."""

    pairs: tuple[tuple[MapSpec, MapSpec], ...]  # of queries and of keys
    window: int
    scores: tuple[float, ...]  # what multiplies exact scores, of each map
    biases: tuple[float, ...]  # what is added to them, of each head of keys
    factors: tuple[float, ...]  # of outputs


def packed_weights(pairs: Callable[[], Iterable[Pair]], kind: int) -> tuple[NDArray[np.float32], int]:
    """Return weights as one flat array, in the order in which they come, and how many there are.

    Those of 16 bits, of a kind, stay as they are (`weights_loops`); they are asked for twice, so that none is held.
    """
    room = count = 0
    for weight, bias in pairs():
        room += _floats(weight.dtype, *np.atleast_2d(weight).shape)
        count += weight.size + (0 if bias is None else bias.size)
    memory, at = zeros_by_lines(room, SINGLE), 0
    for weight, bias in pairs():
        rows = np.atleast_2d(weight)
        size, wide = _floats(weight.dtype, *rows.shape), _wide(rows.shape[1])
        panels = memory[at : at + size - wide]
        if weight.dtype == SINGLE:
            _fill(panels.reshape(-1, len(rows), WIDE), rows)
        elif kind == BFLOAT16:
            words = panels.view(np.uint16).reshape(-1, (len(rows) + 1) // 2, WIDE, 2)
            for part in range(min(2, len(rows))):
                _fill(words[..., part], rows.view(np.uint16)[part::2])
        else:
            _fill(panels.view(np.uint16).reshape(-1, (len(rows) + 1) // 2 * 2, WIDE), rows.view(np.uint16))
        if bias is not None:
            memory[at + size - wide :][: bias.size] = bias
        at += size
    return memory, count


def _wide(columns: int) -> int:
    """Return columns in whole panels."""
    return -(-columns // WIDE) * WIDE


def _floats(dtype: Any, depth: int, columns: int) -> int:
    """Return how many floats a matrix and its bias, or a scale and its bias, take of the memory."""
    return _wide(columns) * (1 + (depth if dtype == SINGLE else (depth + 1) // 2))


def _fill(panels: NDArray[Any], rows: NDArray[Any]) -> None:
    """Write a matrix to panels (panels, depth, WIDE) of zeros, without a copy of it."""
    whole, depth = rows.shape[1] // WIDE, len(rows)
    panels[:whole, :depth] = rows[:, : whole * WIDE].reshape(depth, whole, WIDE).transpose(1, 0, 2)
    if whole * WIDE < rows.shape[1]:
        panels[whole, :depth, : rows.shape[1] - whole * WIDE] = rows[:, whole * WIDE :]


def most_room(
    sizes: dict[str, Any], mixers: Sequence[Mixer], experts: Sequence[Experts], attends: bool, maps: Maps
) -> dict[str, int]:
    """Return the room that the widest layers need, of those whose mixers or experts are given and of attention."""
    values, d = sizes["heads"] * sizes["head_width"], sizes["head_width"]
    joint = [values * (2 if sizes["head_gate"] else 1) + 2 * sizes["key_heads"] * d] if attends else []
    joint += [each.count for each in experts]
    inside = [max(each.hidden, each.shared) for each in experts]
    inside += [m.groups * m.d for m in mixers if m.decay_rank] + [m.heads * m.e for m in mixers if m.gate_rank]
    by_heads = [3 * f + w for f, w, own in zip(maps.features, maps.windows, maps.own, strict=True) if own]
    scratch = [4 * d + 11 * LINE + each for each in by_heads]  # as `heads_loops` cuts it
    scratch += [7 * LINE + 6 * max(m.d, m.e) + m.heads * m.e + WIDE for m in mixers]
    return {
        "joint": max(joint + [m.columns + m.gates for m in mixers]),
        "mixed": max([values] * attends + [m.heads * m.e for m in mixers]),
        "inside": max([sizes["hidden"], *inside]),
        "scratch": max([(sizes["dim"] + WIDE) * bool(experts), *scratch]),
    }


def packed_maps(specs: Sequence[tuple[MapSpec, MapSpec] | HeadMaps | None], dim: int) -> Maps:
    """Return the maps (of queries, of keys) of all layers; None stands for exact attention."""
    rows: list[NDArray[np.int64]] = []
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    constants: list[NDArray[Any]] = [np.zeros(0, SINGLE)]
    layers: dict[str, list[int]] = {name: [] for name in ("features", "peaks", "windows", "first", "own")}
    begins = [0, 0]

    def keep(which: int, array: NDArray[Any]) -> tuple[int, int]:
        """Keep an array; return where it begins, and its size."""
        begin, into = begins[which], (numbers, constants)[which]
        into.append(np.pad(array, (0, -array.size % UNIT)))
        begins[which] += into[-1].size
        return begin, array.size

    for each in specs:
        heads = each if isinstance(each, HeadMaps) else None
        pairs: Any = () if each is None else (each,) if heads is None else heads.pairs
        first, features, peaks = len(rows) // 2, [0], [0]
        for at, pair in enumerate(pairs):
            for spec in pair:
                phi = pack_map(spec if heads is None else plain(spec), SINGLE, dim)
                row = np.zeros(MAP_COLUMNS, np.int64)
                row[:4] = *keep(0, phi.arrays[0]), *keep(1, phi.arrays[1])
                if heads is not None:
                    form = spec.row_form
                    row[NORMALISED], row[RANK] = spec.normalised, -1
                    if form is not None or spec.row_weights is not None:
                        row[RANK] = 0 if form is None else len(form.factor)
                    row[SCALE], _ = keep(1, _scales(spec, heads, at, dim))
                rows.append(row)
            features.append(phi.features)
            peaks.append(phi.features if phi.kind.per_feature else 1)
        window, own = (0, 0) if heads is None else (heads.window, len(pairs))
        sizes = max(features), max(peaks), window, first, own
        for of, number in zip(layers.values(), sizes, strict=True):
            of.append(number)
    flat = zeros_by_lines(begins[1], SINGLE)
    np.concatenate(constants, out=flat)
    table = np.concatenate([np.zeros(0, np.int64), *rows])
    return Maps(np.concatenate(numbers), flat, table, **layers)


def plain(spec: MapSpec) -> MapSpec:
    """Return a map without the log scales of its rows, and with an array of frequencies."""
    return replace(spec.unscaled, omega=None if spec.omega is None else np.asarray(spec.omega))


def _scales(spec: MapSpec, heads: HeadMaps, at: int, dim: int) -> NDArray[Any]:
    """Return the constants of a map that `heads_loops` reads beside its features."""
    form, none = spec.row_form, np.zeros(dim)
    three = heads.scores[at], heads.biases[at], heads.factors[at]
    weights = none if spec.row_weights is None else spec.row_weights
    rest = (none, none) if form is None else (form.linear, form.centre, form.factor)
    return np.concatenate([three, weights, *rest], axis=None).astype(SINGLE)
