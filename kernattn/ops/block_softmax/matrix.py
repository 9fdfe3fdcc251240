"""Exact attention on the matrix unit: keys and values packed once, and the few rows that tiles cannot hold told."""

from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import LINE, PAIRS
from kernattn.ops._numba.matrix.operands import Operands, operands
from kernattn.ops._numba.matrix.products import BLOCK
from kernattn.ops._numba.tiles.layout import Rows, narrow, room, written
from kernattn.ops.block_softmax.matrix_loops import pack_keys, tiled_softmax
from kernattn.ops.block_softmax.ordered import Inputs, reorder

FEWEST = 256
"""Queries from which on keys are packed for them: for few, packing takes longer than the products save."""

SCALES = 2.0**-30, 2.0**30
"""Sizes of the scale between which scores of numbers that are not far stay in the range of floats."""

FASTER = 1.2 if PAIRS else 3  # than the loop of floats, roughly

BYTES_PER_SECOND = 2e9  # of rows that are packed, roughly

_SINGLE = np.dtype(np.float32)


class Answered(NamedTuple):
    """Outputs and log normalisers, and which rows of them the loops of floats are to answer."""

    out: NDArray[Any]
    lse: NDArray[Any]
    told: NDArray[np.bool_]

    def patch(self, out: NDArray[Any], lse: NDArray[Any]) -> tuple[Array, Array]:
        """Return these answers with rows of others where such are needed."""
        self.out[self.told], self.lse[self.told] = out[self.told], lse[self.told]
        return self.out, self.lse


def on_unit(q: Array, queries: Rows, given: Inputs, scale: float, how: Any, in_bits: bool) -> Answered | None:
    """Answer queries by the unit as `how` plans it, or return None where it does not serve; `given` are keys.

    Answers have the dtype of the queries if `in_bits`, else they are floats.
    """
    n, dim, length, e = how.sizes
    if n < FEWEST or 0 in (dim, length, e) or not SCALES[0] <= abs(scale) <= SCALES[1]:
        return None
    taken = operands(q)
    if taken is None:
        return None
    if not queries[2] == given[0][2] == given[1][2]:
        return None
    out = room(how.out, q.dtype if in_bits and not how.joins else _SINGLE)
    lse, told = np.empty(how.lse, _SINGLE), np.zeros(how.lse, np.uint8)
    if how.cleared:
        out[...], lse[...] = 0, -np.inf
    answers, flat_lse, flat_told = written(out, _SINGLE), lse.reshape(-1), told.reshape(-1)
    for_all = None
    for work in how.work:
        if work.order is not None:
            own = reorder(work.order, *given, how.sizes)
            packed = _pack(own[0], own[1], work.sizes, taken)
        else:
            own = given
            packed = for_all = for_all or _pack(own[0], own[1], work.sizes, taken)
        tiles = partial(
            tiled_softmax, queries, packed.arrays, own[2], own[3], scale, (*work.sizes, *packed.heads, *taken),
            work.table, work.words, answers, flat_lse, flat_told,
        )  # fmt: skip
        share(tiles, work.pieces, work.seconds / FASTER)
    return Answered(narrow(out, q.dtype) if in_bits else out, lse, told.view(bool))


class _Packed(NamedTuple):
    """Keys and values as the loop reads them."""

    heads: tuple[int, int]  # of keys and of values
    arrays: tuple[NDArray[Any], ...]


def _pack(k: Rows, v: Rows, sizes: tuple[int, int, int, int], taken: Operands) -> _Packed:
    """Return keys (heads, L, D) and values (heads, L, e) in parts; sizes are (n, D, L, e)."""
    (_, dim, length, e), parts = sizes, taken.given
    heads = (k[0].size + k[1].size) // (length * dim), (v[0].size + v[1].size) // (length * e)
    blocks = -(-length // BLOCK)
    arrays = (
        _lines((parts, heads[0], blocks, BLOCK, _whole(dim)), np.uint16),
        _lines((parts, heads[1], blocks, _whole(e), BLOCK), np.uint16),
        np.zeros(heads[0] * blocks * BLOCK, np.uint8),
        np.zeros(heads[1] * blocks * BLOCK, np.uint8),
    )
    loop = partial(pack_keys, k, v, (*heads, length, dim, e, parts), *arrays)
    share(loop, sum(heads) * blocks, (arrays[0].nbytes + arrays[1].nbytes) / BYTES_PER_SECOND)
    return _Packed(heads, arrays)


def _whole(size: int) -> int:
    """Return how much room whole blocks need."""
    return -(-size // BLOCK) * BLOCK


def _lines(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return flat zeros that begin at a cache line: tiles that cross one are read seven times as slowly."""
    size, unit = prod(shape), LINE // np.dtype(dtype).itemsize
    memory = np.zeros(size + unit, dtype)
    skip = -memory.ctypes.data % LINE // memory.itemsize
    return memory[skip : skip + size]
