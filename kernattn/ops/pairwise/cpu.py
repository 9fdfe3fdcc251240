"""Kernel matrices by Numba, rows shared among threads."""

from functools import partial
from math import isqrt
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import accumulation, flat, in_bits, narrow, room, seconds_of, written
from kernattn.ops.pairwise.forms import Form
from kernattn.ops.pairwise.loops import write_pairs

ROWS = 64
PANELS = 1 << 18  # bytes of y that are packed at a time: they stay in the second-level cache
SHORT = 8  # axes of a chain of additions, at least
COLUMNS = 1 << 11  # bytes of a row of measures: a block of rows stays in the first-level cache


def pairwise(x: Array, y: Array, form: Form, dtype: Any = None) -> Array:
    asked, dtype = dtype, accumulation(x)
    (*x_lead, n, d), (*y_lead, k, _) = x.shape, y.shape
    met = heads(None, tuple(x_lead), tuple(y_lead))
    who = np.stack([met.k, met.v], axis=-1)
    out = room((*met.lead, n, k), asked if in_bits(asked, dtype) else dtype)
    slab = partial(
        write_pairs, flat(x, dtype), flat(y, dtype), n, k, d, who, form.measure, form.function,
        dtype.type(form.number), form.degree, written(out, dtype), *cut_pairs(d, k, PANELS, dtype), ROWS,
    )  # fmt: skip
    share(slab, len(who) * -(-n // ROWS), out.size * seconds_of(3.0 * d, 1, dtype.itemsize))
    return out if asked is None else narrow(out, asked, held=False)


def cut_pairs(d: int, k: int, room: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the axes of a chain of additions, and how many of k rows of y meet a block of x, in so many bytes."""
    panel = 2 * LINE // dtype.itemsize
    most = min(room // (d * dtype.itemsize), COLUMNS // dtype.itemsize, k + panel - 1)
    return max(SHORT, 2 * isqrt(d)), max(1, most // panel) * panel
