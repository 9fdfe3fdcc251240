"""Sums of outer products of features in CUDA: a slab of rows has its features written once, then multiplied in tiles.

Were they made anew for every pair of tiles of 32, they would cost 2 d / 32 times the products; twice that where
frequencies are multiplied in two parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._array import Array, dtype_name
from kernattn.ops import _cuda, _cuda_linear
from kernattn.ops.features.reference import features as composed
from kernattn.ops.spec import MapSpec

__all__ = ["Plan", "gram", "plan"]

ROOM = 1 << 28  # bytes of the features of a slab
COLLECT_THREADS = 256


@dataclass(frozen=True)
class Plan:
    """The launches of `slab_features` and `outer` for every slab, and of `collect` over several parts."""

    code: _cuda.MapCode
    side: int
    slots: int  # of features in a row of the slab
    slab_rows: int
    parts: int  # of a slab's rows, multiplied apart
    part_rows: int
    spread: int  # blocks of `slab_features` that share the frequencies of a row tile
    outer_blocks: int
    features_bytes: int
    outer_bytes: int

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return (*self.code.defines, f"-DSIDE={self.side}")

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of the larger of the two kernels' blocks."""
        return max(self.features_bytes, self.outer_bytes)


def plan(entries: int, n: int, frequencies: int, columns: int, code: _cuda.MapCode, limits: _cuda.Limits) -> Plan:
    """Return the launches for x (entries, n, d) and y (entries, n, columns)."""
    side = 64 if code.operand == "double" else 128
    depth = side // 2
    slots = code.tiles(frequencies) * _cuda.FB
    fit = ROOM // (entries * slots * _cuda.BYTES[code.operand]) // code.rows * code.rows
    slab_rows = max(1, min(n, max(code.rows, fit)))
    lefts = _cuda.ceil_div(slots, side)
    tiles = entries * lefts * (lefts + _cuda.ceil_div(columns, side))
    wanted = _cuda.ceil_div(4 * limits.multiprocessors, tiles)  # half the tiles have nothing to do
    parts = max(1, min(wanted, slab_rows // (8 * depth)))
    part_rows = _cuda.ceil_div(_cuda.ceil_div(slab_rows, parts), depth) * depth
    parts = _cuda.ceil_div(slab_rows, part_rows)
    row_tiles = entries * _cuda.ceil_div(slab_rows, code.rows)
    tile = (code.rows * _cuda.row_length(code.operand, _cuda.FB), code.operand)
    return Plan(
        code,
        side,
        slots,
        slab_rows,
        parts,
        part_rows,
        min(slots // _cuda.FB // code.parts, _cuda.ceil_div(4 * limits.multiprocessors, row_tiles)),
        parts * tiles,
        _cuda.map_bytes(code, 1) + _cuda.pieces(tile, (code.rows, code.accumulator)),
        2 * _cuda.pieces((depth * _cuda.row_length(code.operand, side), code.operand)),
    )


def gram(x: Array, y: Array, spec: MapSpec | None) -> tuple[Array, Array]:
    """Return phi^T phi (..., M, M) and phi^T y (..., M, c)."""
    import cupy

    if spec is not None and spec.row_form is not None:  # the kernels have no such log scale
        x, spec = composed(x, spec), None
    device = _cuda.limits()
    lead = _cuda_linear.merged_lead(x.shape[:-2], y.shape[:-2])
    x, y = _cuda_linear.broadcast(x, lead, 2), _cuda_linear.broadcast(y, lead, 2)
    (n, d), c, entries = x.shape[-2:], y.shape[-1], _cuda_linear.entries(lead)
    code = _cuda.map_code(dtype_name(x), spec, spec is not None and spec.per_feature, d, device)
    constants = _cuda.map_arguments(spec, code, d)
    frequencies = int(constants[-2])
    how = plan(entries, n, frequencies, c, code, device)
    features = frequencies * code.parts
    real = cupy.float64 if code.accumulator == "double" else cupy.float32
    several = (how.parts,) if how.parts > 1 else ()
    outer, moment = (cupy.empty((*several, *lead, features, columns), dtype=real) for columns in (features, c))

    given = spec is None
    size = entries * how.slab_rows * how.slots * _cuda.BYTES[code.operand]
    room = x if given else cupy.empty(size, dtype=cupy.uint8)
    multiply = _cuda.kernel("gram", "outer", how.defines)
    for first in range(0, max(n, 1), how.slab_rows):
        count = min(how.slab_rows, n - first)
        if not given and count:
            blocks = entries * _cuda.ceil_div(count, code.rows) * how.spread
            arguments = (x, room, *constants, np.int64(n), np.int64(first), np.int32(count), np.int32(how.spread))
            write = _cuda.kernel("gram", "slab_features", how.defines)
            _cuda.launch(write, (blocks,), code.threads, how.features_bytes, arguments)
        slab = (np.int64(n), np.int64(first)) if given else (np.int64(count), np.int64(0))
        rows = (np.int64(n), np.int64(first), np.int32(count), np.int32(how.part_rows))
        sizes = (*slab, *rows, np.int32(c), np.int32(entries), np.int32(first > 0))
        arguments = (room, y, outer, moment, np.int32(frequencies), *sizes)
        _cuda.launch(multiply, (how.outer_blocks,), 2 * how.side, how.outer_bytes, arguments)
    return (_collected(outer, how), _collected(moment, how)) if several else (outer, moment)


def _collected(parts: Array, how: Plan) -> Array:
    """Return the sum over the first axis."""
    import cupy

    total: Any = cupy.empty(parts.shape[1:], dtype=parts.dtype)
    if total.size:
        function = _cuda.kernel("gram", "collect", how.defines)
        blocks = _cuda.ceil_div(total.size, COLLECT_THREADS)
        _cuda.launch(
            function, (blocks,), COLLECT_THREADS, 0, (parts, total, np.int64(total.size), np.int32(len(parts)))
        )
    return total
