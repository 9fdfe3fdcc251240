"""The recurrence of linear attention on the matrix unit, and the few rows and sums that floats answer in its place."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import PAIRS
from kernattn.ops._numba.matrix.operands import Operands, operands
from kernattn.ops._numba.tiles.layout import Rows
from kernattn.ops.features.sides import Side
from kernattn.ops.key_state.matrix_loops import recur_tiles

SERVED = not PAIRS
"""Is linear attention faster on the unit? Features are in two parts on both sides: by pairs the loops of floats win."""

CHUNK = 64
"""Tokens of a chunk where sums are kept: whole blocks, and a product of 2 x 2 of them."""

FEATURES, COLUMNS = 32, 16
"""Features and columns of values from which on whole blocks are worth their zeros."""

UNPROJECTED = 128
"""Features from which on the unit is faster where it has no projections to take: packing costs as much as products."""

PARTS = 1
"""Of numbers of 16 bits, at most: products of float16, in two parts, take as long as those of floats."""

FASTER = 2  # than floats, roughly

Answers: TypeAlias = tuple[Rows, NDArray[Any], NDArray[Any]]
"""Outputs, and peaks and z of their normalisers or nothing, as the loop writes them."""

Sums: TypeAlias = tuple[NDArray[Any], ...]


def operands_for(v: Array, *sides: Side | None) -> Operands | None:
    """Return how the unit takes products with values v, or None where floats take them: as maps and widths say."""
    if not SERVED:
        return None
    for phi in (side.phi for side in sides if side is not None):
        fewest = FEATURES if phi.kind.per_feature else UNPROJECTED
        if phi.features < fewest or not (phi.kind.positive or phi.kind.per_feature):
            return None
    taken = operands(v) if v.shape[-1] >= COLUMNS else None
    return None if taken is not None and v.dtype.itemsize == 2 and taken.given > PARTS else taken


def on_unit(
    given: tuple[Any, ...],
    answers: Answers,
    after: Sums,
    chunk: int,
    taken: Operands,
    by_floats: Callable[[Answers, Sums], bool],
    seconds: float,
) -> bool:
    """Answer as `by_floats` does, which is called for what tiles cannot hold; `given` is what `recur` takes first."""
    (floats, bits, _), e, table = answers[0], given[2], given[6]
    told, told_after = np.zeros((floats.size + bits.size) // e, np.uint8), np.zeros(len(table), np.uint8)
    chunk = CHUNK if after[0].size else chunk
    whole: list[bool] = []

    def slab(low: int, high: int) -> None:
        parts = taken.given, taken.made
        whole.append(recur_tiles(*given, answers, after, chunk, parts, told, told_after, low, high))

    share(slab, len(table), seconds / FASTER)
    if all(whole) and (told.any() or told_after.any()):
        return patch(answers, after, told.view(bool), told_after.view(bool), by_floats)
    return all(whole)


def patch(
    answers: Answers,
    after: Sums,
    told: NDArray[np.bool_],
    told_after: NDArray[np.bool_],
    by_floats: Callable[[Answers, Sums], bool],
) -> bool:
    """Put answers by floats in place of those that are told, and sums likewise; return what `by_floats` returns."""
    (floats, bits, kind), *normaliser = answers
    arrays = [(floats, told), (bits, told), *((x, told) for x in normaliser), *((x, told_after) for x in after)]
    others = [np.empty_like(x) for x, _ in arrays]
    whole = by_floats(((others[0], others[1], kind), others[2], others[3]), tuple(others[4:]))
    for (x, rows), y in zip(arrays, others, strict=True):
        if x.size:
            x.reshape(len(rows), -1)[rows] = y.reshape(len(rows), -1)[rows]
    return whole
