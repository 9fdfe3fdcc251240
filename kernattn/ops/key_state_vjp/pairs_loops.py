"""Pairs of a chunk: products of rows of writers and of readers, of which a reader sees those up to its own."""

from kernattn.ops._numba.codegen.compile import inner_exact, phase
from kernattn.ops._numba.codegen.registers import TALL, lanes
from kernattn.ops._numba.codegen.vectors import load, store, where
from kernattn.ops._numba.tiles.products import UPPER, product


@phase
def meet(rows, sums, tiles):
    """Set pairs to the products of the rows of writers and of readers."""
    product(
        tiles.left.v, 0, sums.row, 1, tiles.across, 0, tiles.size, tiles.pairs, 0, tiles.size,
        rows, rows, sums.e, False, UPPER,
    )  # fmt: skip


@inner_exact
def zeros_below(pairs, rows, row, edge):
    """Put zeros where writer j stands after reader i, as far as blocks reach; edge is zeros, and as many ones."""
    zero, width = pairs.dtype.type(0), lanes(pairs)
    none = load(edge, 0)
    for j in range(rows):
        first = j // width * width
        for i in range(max(0, j + 1 - TALL) // width * width, first, width):
            store(none, pairs, j * row + i)
        y = load(pairs, j * row + first)
        store(where(load(edge, width - (j - first)) > zero, y, zero), pairs, j * row + first)


@inner_exact
def cut(pairs, rows, row, left, right, edge):
    """Add left_j right_i to pairs (C, C) where writer j stands before reader i, or is its own, and zeros elsewhere."""
    width = lanes(pairs)
    for j in range(rows):
        for i in range(j // width * width, rows, width):
            store(load(pairs, j * row + i) + load(right, i) * left[j], pairs, j * row + i)
    zeros_below(pairs, rows, row, edge)
