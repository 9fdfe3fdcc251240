"""Loops that hand arrays to parts of the matrix unit."""

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import whole
from kernattn.ops._numba.matrix.instructions import configure, release, unit_room
from kernattn.ops._numba.matrix.parts import pack_pairs, pack_row
from kernattn.ops._numba.matrix.products import BLOCK, multiply, multiply_tiles


@compiled
def pack(a, b, parts, words_a, words_b):
    """Split a (m, depth) and b (depth, n), flat, into parts."""
    m, depth, n = parts[3:]
    words_a, words_b, a, b = whole(words_a), whole(words_b), whole(a), whole(b)
    pack_row(a, 0, m * depth, words_a, 0, m * depth, parts[0])
    pack_pairs(b, n, depth, n, words_b, n, depth // 2 * n, parts[1])


@compiled
def add_product(words_a, words_b, parts, c):
    """Add the product of what `pack` made to c (m, n), flat."""
    m, depth, n = parts[3:]
    words_a, words_b, c, unit = whole(words_a), whole(words_b), whole(c), unit_room()
    configure(unit)
    multiply(
        unit, words_a, 0, depth, BLOCK, m * depth, words_b, 0, n, depth // 2 * n, parts[:3], c, 0, n, m, n, depth, True
    )
    release(unit)


@compiled
def add_product_by_tiles(words_a, words_b, parts, c):
    """As `add_product`, by tiles, which are emulated on machines that have none."""
    m, depth, n = parts[3:]
    words_a, words_b, c, unit = whole(words_a), whole(words_b), whole(c), unit_room()
    configure(unit)
    multiply_tiles(
        unit, words_a, 0, depth, BLOCK, m * depth, words_b, 0, n, depth // 2 * n, parts[:3], c, 0, n, m, n, depth, True
    )
    release(unit)
