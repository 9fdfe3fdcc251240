"""Kernel matrices by Numba, rows shared among threads."""

from math import isqrt

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, accumulation, flat, room
from kernattn.ops.pairwise.forms import Form
from kernattn.ops.pairwise.loops import write_pairs

ROWS = 64
PANELS = 1 << 18  # bytes of y that are packed at a time: they stay in the second-level cache
SHORT = 8  # axes of a chain of additions, at least
COLUMNS = 1 << 11  # bytes of a row of measures: a block of rows stays in the first-level cache


def pairwise(x: Array, y: Array, form: Form) -> Array:
    """Return f(m(x_i, y_j)), (..., n, k)."""
    dtype = accumulation(x)
    (*x_lead, n, d), (*y_lead, k, _) = x.shape, y.shape
    met = heads(None, tuple(x_lead), tuple(y_lead))
    who = np.stack([met.k, met.v], axis=-1)
    out = room((*met.lead, n, k), dtype)
    rows, others, entries = flat(x, dtype), flat(y, dtype), out.reshape(-1)
    panel = 2 * LINE // dtype.itemsize
    most = min(PANELS // (d * dtype.itemsize), COLUMNS // dtype.itemsize, k + panel - 1)
    columns, chain = max(1, most // panel) * panel, max(SHORT, 2 * isqrt(d))
    number = dtype.type(form.number)

    def slab(low: int, high: int) -> None:
        write_pairs(
            rows, others, n, k, d, who, form.measure, form.function, number, form.degree,
            entries, chain, columns, ROWS, low, high,
        )  # fmt: skip

    seconds = entries.size * (3.0 * d / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * dtype.itemsize / 4
    share(slab, len(who) * -(-n // ROWS), seconds)
    return out
