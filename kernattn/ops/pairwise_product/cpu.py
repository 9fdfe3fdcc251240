"""Products of kernel matrices by Numba, blocks of rows shared among threads."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._runtime.parallel import share, threads
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.tiles.layout import accumulation, flat, seconds_of
from kernattn.ops.pairwise.cpu import cut_pairs
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, MATERN, SQUARED, Form
from kernattn.ops.pairwise.reference import prepare_rows
from kernattn.ops.pairwise_product.loops import add_products

SIDE = 512  # rows of a job
FEW = 16  # rows of a job, at least
NARROW = 4  # columns of v that are multiplied one by one
PANELS = 1 << 20  # bytes of y that are packed at a time: they stay in the second-level cache
AXES = 16  # up to which differences are as fast as products
SPREAD = {"float32": 2.0**4, "float64": 2.0**10}
"""Squared norms about a centre, up to which distances are as good by products: errors in them are epsilons of that."""


def pairwise_product(x: Array, y: Array | None, v: Array, form: Form) -> Array:
    dtype, symmetric = accumulation(x), y is None
    x, others, form = _as_products(x, x if y is None else y, form)
    (n, d), (k, c) = x.shape, v.shape
    unit, narrow = LINE // dtype.itemsize, c <= NARROW
    width = c if narrow else -(-c // unit) * unit
    values = flat(v.T if narrow else np.pad(v, ((0, 0), (0, width - c))), dtype)
    out = np.zeros((c, n) if narrow else (n, width), dtype)
    add = partial(add_products, flat(x, dtype), flat(others, dtype), values, out.reshape(-1), n, k, d, width, narrow)
    how = form.measure, form.function, dtype.type(form.number), form.degree, *cut_pairs(d, k, PANELS, dtype)
    for jobs in _rounds(n) if symmetric else [_blocks(n, k)]:
        entries = float(np.sum((jobs[:, 1] - jobs[:, 0]) * (jobs[:, 3] - jobs[:, 2])))
        seconds = entries * seconds_of(3.0 * d + 2.0 * width, 1, dtype.itemsize)
        share(partial(add, jobs, SIDE, *how), len(jobs), seconds)
    return out.T if narrow else out[:, :c]


def _as_products(x: Array, y: Array, form: Form) -> tuple[Array, Array, Form]:
    """Return rows whose product is -|x - y|^2 / 2, and a function of it, where that will do."""
    smooth = form.function == EXPONENTIAL or (form.function == MATERN and form.degree > 0)
    if form.measure != SQUARED or not smooth or x.shape[-1] <= AXES:
        return x, y, form
    centre, across, norms = prepare_rows(np, y, SQUARED)
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
