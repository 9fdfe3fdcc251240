"""How arrays are handed to the loop over tokens: by the addresses of their objects, which the caller keeps alive."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn.ops._numba.tiles.layout import Rows, rows
from kernattn.ops.gated.loops import Given
from kernattn.ops.gated.tokens_loops import run_tokens


def lend(arrays: Sequence[Array | None], dtype: np.dtype[Any]) -> tuple[list[Array | None], int]:
    """Return rows as contiguous floats of a dtype or bits, to be kept alive while a loop runs, and their kinds."""
    held, kinds, shift = [], 0, 0
    for x in arrays:
        if x is not None and not (x.dtype is dtype and x.flags.c_contiguous):
            floats, bits, kind = rows(x, dtype)
            x = bits if kind else floats
            kinds |= kind << shift
        held.append(x)
        shift += 2
    return held, kinds


def run(
    sizes: NDArray[np.int64], given: Given, q: Rows, before: NDArray[Any], table: NDArray[np.int64],
    reads: NDArray[np.int64], scale: Any, out: Rows, after: NDArray[Any], low: int, high: int,
) -> None:  # fmt: skip
    """Run the loop over tokens with its own sizes, else the arguments of `run_gates`, alive as long as this frame."""
    all_rows = given.k, given.v, given.logs, given.read, given.write, q, out
    kinds = sum(x[2] << 2 * at for at, x in enumerate(all_rows))
    k, v, logs, read, write, q_rows, out_rows = (bits if kind else floats for floats, bits, kind in all_rows)
    arrays = k, v, logs, given.beta, read, write, given.mask, given.fresh, q_rows, before, out_rows, after
    where = (id(sizes), id(table), id(reads), *[id(x) if x.size else 0 for x in arrays])
    run_tokens(*where, kinds, given.normalise, scale, low, high)
