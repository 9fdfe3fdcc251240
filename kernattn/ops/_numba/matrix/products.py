"""Products of matrices on the unit: by tiles, blocks of 32 x 32, or by pairs; operands have one bfloat16 or two.

Of two numbers in two parts each, (a + a') (b + b'), the term a' b' is at most 2^-16 of the whole, and left out unless
all four are asked for. A cell is one chain of sums, whatever block it falls into: no row's bits depend on the rows
beside it.
"""

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.registers import PAIRS
from kernattn.ops._numba.matrix.instructions import dot, load_tile, store_tile, zero
from kernattn.ops._numba.matrix.pairs import AT_ONCE, multiply_pairs

BLOCK = 32
"""Rows, columns and inner elements of which whole blocks are made."""


@inner
def _load_left(unit, a, at, row):
    load_tile(unit, 4, a, at, row)
    load_tile(unit, 5, a, at + 16 * row, row)


@inner
def _load_right(unit, b, at, row):
    load_tile(unit, 6, b, at, row)
    load_tile(unit, 7, b, at + 16, row)


@inner
def multiply_tiles(
    unit, a, a_at, a_row, a_step, a_part, b, b_at, b_row, b_part, parts, c, c_at, c_row, m, n, depth, accumulate
):  # fmt: skip
    """Compute c[i, j] (+)= sum_k a[i, k] b[k, j] for i < m, j < n, k < depth, all multiples of BLOCK.

    Part p of a[i, k] lies at a_at + p a_part + i a_row + k, 16 bits, but blocks of BLOCK elements begin a_step apart.
    That of b[k, j] and b[k + 1, j] lies at b_at + p b_part + k/2 b_row + j, one word.
    `parts` are those of a, those of b, and the sum of p of both from which on their product is left out.
    """
    _load_left(unit, a, a_at, a_row)
    _load_right(unit, b, b_at, b_row)
    for i in range(0, m, 32):
        for j in range(0, n, 32):
            to = c_at + i * c_row + j
            if accumulate:
                load_tile(unit, 0, c, to, c_row)
                load_tile(unit, 1, c, to + 16, c_row)
                load_tile(unit, 2, c, to + 16 * c_row, c_row)
                load_tile(unit, 3, c, to + 16 * c_row + 16, c_row)
            else:
                zero(unit, 0)
                zero(unit, 1)
                zero(unit, 2)
                zero(unit, 3)
            for k in range(0, depth, 32):
                for p in range(parts[0]):
                    if k + p > 0:
                        _load_left(unit, a, a_at + p * a_part + i * a_row + k // 32 * a_step, a_row)
                    for r in range(min(parts[1], parts[2] - p)):
                        if k + p + r > 0:
                            _load_right(unit, b, b_at + r * b_part + j + k // 2 * b_row, b_row)
                        dot(unit, 0, 4, 6)
                        dot(unit, 1, 4, 7)
                        dot(unit, 2, 5, 6)
                        dot(unit, 3, 5, 7)
            # the first operands of the next block, before stores that would hold them up
            if j + 32 < n:
                _load_left(unit, a, a_at + i * a_row, a_row)
                _load_right(unit, b, b_at + j + 32, b_row)
            elif i + 32 < m:
                _load_left(unit, a, a_at + (i + 32) * a_row, a_row)
                _load_right(unit, b, b_at, b_row)
            store_tile(unit, 0, c, to, c_row)
            store_tile(unit, 1, c, to + 16, c_row)
            store_tile(unit, 2, c, to + 16 * c_row, c_row)
            store_tile(unit, 3, c, to + 16 * c_row + 16, c_row)


multiply, GRAIN = (multiply_pairs, AT_ONCE) if PAIRS else (multiply_tiles, BLOCK)
"""The product of this machine, and what its m and depth are multiples of."""
