"""Products of kernel matrices by Numba, blocks of rows shared among threads."""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, threads
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, accumulation, flat
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, MATERN, SQUARED, Form
from kernattn.ops.pairwise.reference import prepared
from kernattn.ops.pairwise_product.loops import add_products

SIDE = 512  # rows of a job
FEW = 16  # rows of a job, at least
NARROW = 4  # columns of v that are multiplied one by one
PANELS = 1 << 20  # bytes of y that are packed at a time: they stay in the second-level cache
SHORT = 8  # axes of a chain of additions, at least
COLUMNS = 1 << 11  # bytes of a row of measures: a block of rows stays in the first-level cache
AXES = 16  # up to which differences are as fast as products
SPREAD = {"float32": 2.0**4, "float64": 2.0**10}
"""Squared norms about a centre, up to which distances are as good by products: errors in them are epsilons of that."""


def pairwise_product(x: Array, y: Array | None, v: Array, form: Form) -> Array:
    """Return f(m(x_i, y_j)) v, (n, c)."""
    dtype, symmetric = accumulation(x), y is None
    x, others, form = _as_products(x, x if y is None else y, form)
    (n, d), (k, c) = x.shape, v.shape
    panel, unit = 2 * LINE // dtype.itemsize, LINE // dtype.itemsize
    most = min(PANELS // (d * dtype.itemsize), COLUMNS // dtype.itemsize, k + panel - 1)
    columns, chain = max(1, most // panel) * panel, max(SHORT, 2 * isqrt(d))
    narrow = c <= NARROW
    width = c if narrow else -(-c // unit) * unit
    values = flat(v.T if narrow else np.pad(v, ((0, 0), (0, width - c))), dtype)
    out = np.zeros((c, n) if narrow else (n, width), dtype)
    left, right, sums, number = flat(x, dtype), flat(others, dtype), out.reshape(-1), dtype.type(form.number)

    def run(jobs: NDArray[np.int64]) -> None:
        def slab(low: int, high: int) -> None:
            add_products(
                left, right, values, sums, n, k, d, width, narrow, jobs, SIDE,
                form.measure, form.function, number, form.degree, chain, columns, low, high,
            )  # fmt: skip

        entries = float(np.sum((jobs[:, 1] - jobs[:, 0]) * (jobs[:, 3] - jobs[:, 2])))
        flops = 3.0 * d + 2.0 * width
        share(slab, len(jobs), entries * (flops / FLOPS_PER_SECOND + SECONDS_PER_FEATURE) * dtype.itemsize / 4)

    for jobs in _rounds(n) if symmetric else [_blocks(n, k)]:
        run(jobs)
    return out.T if narrow else out[:, :c]


def _as_products(x: Array, y: Array, form: Form) -> tuple[Array, Array, Form]:
    """Return rows whose product is -|x - y|^2 / 2, and a function of it, where that will do."""
    smooth = form.function == EXPONENTIAL or (form.function == MATERN and form.degree > 0)
    if form.measure != SQUARED or not smooth or x.shape[-1] <= AXES:
        return x, y, form
    centre, across, norms = prepared(np, y, SQUARED)
    own = x - centre
    squares = np.einsum("ij,ij->i", own, own)[:, None]
    if not max(np.max(squares), np.max(norms)) <= SPREAD[str(x.dtype)]:  # NaN too
        return x, y, form
    left = np.hstack([own, -0.5 * squares, np.ones_like(squares)])
    right = np.hstack([across.T, np.ones_like(norms.T), -0.5 * norms.T])
    return left, right, form._replace(measure=DOT, number=-2.0 * form.number)


def _blocks(n: int, k: int) -> NDArray[np.int64]:
    """Return jobs of some rows and all columns."""
    step = min(SIDE, max(FEW, -(-n // (8 * threads()))))
    first = np.arange(0, n, step)
    last, none = np.minimum(first + step, n), np.zeros_like(first)
    return np.stack([first, last, none, none + k, none], axis=1)


def _rounds(n: int) -> list[NDArray[np.int64]]:
    """Return rounds of jobs: every two panels meet once, and in a round no panel is in two jobs (a tournament)."""
    count = -(-n // SIDE)
    even = count + count % 2
    edges = np.minimum(np.arange(even + 1) * SIDE, n)

    def jobs(pairs: list[tuple[int, int]]) -> NDArray[np.int64]:
        wanted = [(edges[a], edges[a + 1], edges[b], edges[b + 1], a != b) for a, b in pairs if max(a, b) < count]
        return np.array(wanted, np.int64)

    rounds = [[(a, a) for a in range(count)]]
    for turn in range(even - 1 if count > 1 else 0):
        rest = [(turn + a) % (even - 1) for a in range(even - 1)]
        circle = [even - 1, *rest]
        rounds.append([(circle[a], circle[even - 1 - a]) for a in range(even // 2)])
    return [jobs(pairs) for pairs in rounds]
