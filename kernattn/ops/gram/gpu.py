"""Sums of outer products of features in CUDA: a slab of rows has its features written once, then multiplied in tiles.

Were they made anew for every pair of tiles of 32, they would cost 2 d / 32 times the products; twice that where
frequencies are multiplied in two parts.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import broadcast, merged_lead
from kernattn.ops._cuda.maps import FB, MapCode, map_arguments, map_bytes, map_code
from kernattn.ops._cuda.sizes import BYTES, REALS, ceil_div, options, pieces, row_length
from kernattn.ops.features.gpu import features as written
from kernattn.ops.features.reference import features as composed

ROOM = 1 << 28  # bytes of the features of a slab
COLLECT_THREADS = 256


@dataclass(frozen=True)
class GramLaunch:
    """The launches of `slab_features` and `outer` for every slab, and of `collect` over several parts."""

    code: MapCode
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
        return (*self.code.defines, *options(SIDE=self.side))

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of the larger of the two kernels' blocks."""
        return max(self.features_bytes, self.outer_bytes)


def launch(entries: int, n: int, frequencies: int, columns: int, code: MapCode, limits: runtime.Limits) -> GramLaunch:
    """Return the launches for x (entries, n, d) and y (entries, n, columns)."""
    side, depth = _tile(code, limits)
    slots = code.tiles(frequencies) * FB
    fit = ROOM // (entries * slots * BYTES[code.operand]) // code.rows * code.rows
    slab_rows = max(1, min(n, max(code.rows, fit)))
    lefts = ceil_div(slots, side)
    tiles = entries * lefts * (lefts + ceil_div(columns, side))
    wanted = ceil_div(4 * limits.multiprocessors, tiles)  # half the tiles have nothing to do
    parts = max(1, min(wanted, slab_rows // (8 * depth)))
    part_rows = ceil_div(ceil_div(slab_rows, parts), depth) * depth
    parts = ceil_div(slab_rows, part_rows)
    row_tiles = entries * ceil_div(slab_rows, code.rows)
    tile = (code.rows * row_length(code.operand, FB), code.operand)
    return GramLaunch(
        code,
        side,
        slots,
        slab_rows,
        parts,
        part_rows,
        min(slots // FB // code.parts, ceil_div(4 * limits.multiprocessors, row_tiles)),
        parts * tiles,
        map_bytes(code, 1) + pieces(tile, (code.rows, code.accumulator)),
        _outer_bytes(code, side, depth),
    )


def _tile(code: MapCode, limits: runtime.Limits) -> tuple[int, int]:
    """Return the features of a side of a tile of `outer`, and the rows that it multiplies at a time."""
    wide = code.operand != "double" and _outer_bytes(code, 128, 64) <= limits.shared_bytes
    return (128, 64) if wide else (64, 32)


def _outer_bytes(code: MapCode, side: int, depth: int) -> int:
    return 2 * pieces((depth * row_length(code.operand, side), code.operand))


def gram(x: Array, y: Array, spec: MapSpec | None, wide: bool) -> tuple[Array, Array]:
    if spec is not None and spec.scales_apart:  # the kernels have no such log scale
        x, spec = composed(x, spec), None
    if wide and dtype_name(x) != "float64":  # features are made in their own dtype
        x = x.astype(cupy.float32, copy=False)
        x, spec = (x if spec is None else written(x, spec)), None
        x, y = (a.astype(cupy.float64) for a in (x, y))
    device = runtime.limits()
    lead = merged_lead(x.shape[:-2], y.shape[:-2])
    x, y = broadcast(x, lead, 2), broadcast(y, lead, 2)
    (n, d), c, entries = x.shape[-2:], y.shape[-1], math.prod(lead)
    code = map_code(dtype_name(x), spec, spec is not None and spec.per_feature, d, device)
    constants = map_arguments(spec, code, d)
    frequencies = int(constants[-2])
    how = launch(entries, n, frequencies, c, code, device)
    features = frequencies * code.parts
    real = REALS[code.accumulator]
    several = (how.parts,) if how.parts > 1 else ()
    outer, moment = (cupy.empty((*several, *lead, features, columns), dtype=real) for columns in (features, c))

    given = spec is None
    size = entries * how.slab_rows * how.slots * BYTES[code.operand]
    room = x if given else cupy.empty(size, dtype=cupy.uint8)
    multiply = runtime.Launch(how.defines, (how.outer_blocks,), 2 * how.side, how.outer_bytes)
    for first in range(0, max(n, 1), how.slab_rows):
        count = min(how.slab_rows, n - first)
        if not given and count:
            blocks = entries * ceil_div(count, code.rows) * how.spread
            arguments = (x, room, *constants, np.int64(n), np.int64(first), np.int32(count), np.int32(how.spread))
            write = runtime.Launch(how.defines, (blocks,), code.threads, how.features_bytes)
            write.start("gram", "slab_features", *arguments)
        slab = (np.int64(n), np.int64(first)) if given else (np.int64(count), np.int64(0))
        rows = (np.int64(n), np.int64(first), np.int32(count), np.int32(how.part_rows))
        sizes = (*slab, *rows, np.int32(c), np.int32(entries), np.int32(first > 0))
        multiply.start("gram", "outer", room, y, outer, moment, np.int32(frequencies), *sizes)
    return (_collect(outer, how), _collect(moment, how)) if several else (outer, moment)


def _collect(parts: Array, how: GramLaunch) -> Array:
    """Return the sum over the first axis."""
    total: Any = cupy.empty(parts.shape[1:], dtype=parts.dtype)
    if total.size:
        own = runtime.Launch(how.defines, (ceil_div(total.size, COLLECT_THREADS),), COLLECT_THREADS, 0)
        own.start("gram", "collect", parts, total, np.int64(total.size), np.int32(len(parts)))
    return total
