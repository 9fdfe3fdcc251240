"""Projections of rows on the unit: frequencies in three parts, which hold every digit of a float32.

Projections are exponents, so errors in them multiply features: in two parts they would grow with the norm of a row.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.halves import BFLOAT16
from kernattn.ops._numba.codegen.memory import aligned, pad, whole, window
from kernattn.ops._numba.matrix.parts import pack_pairs, pack_row
from kernattn.ops._numba.matrix.products import BLOCK, multiply
from kernattn.ops._numba.tiles.products import transpose

PARTS = 3


class Projector(NamedTuple):
    """Operands of projections; made in compiled code, where it costs nothing. C, d and D are whole blocks."""

    frequencies: Any  # (PARTS, d / 2, D), as pairs; no numbers where floats take the projections
    rows: Any  # (parts, C, d)
    found: Any  # (C, D)
    size: Any
    dim: Any
    columns: Any
    given: Any  # parts of a row


@inner
def pack_frequencies(phi, size, x, like, there):
    """Return the operands for so many of the rows x, and pack the frequencies, if the unit is to use them."""
    given = 1 if x[2] == BFLOAT16 else 2
    dim, columns = pad(phi.dim, BLOCK) if there else 0, pad(phi.frequencies, BLOCK) if there else 0
    words, halves = np.zeros(0, np.uint32), np.zeros(0, np.uint16)
    p = Projector(
        aligned(PARTS * dim // 2 * columns, words), aligned(given * size * dim, halves), aligned(size * columns, like),
        size, dim, columns, given,
    )  # fmt: skip
    if there:
        turned = aligned(dim * columns, like)
        transpose(phi.omega, 0, phi.dim, phi.frequencies, phi.dim, turned, 0, columns)
        pack_pairs(turned, columns, dim, columns, p.frequencies, columns, dim // 2 * columns, PARTS)
    return p


@inner
def projector_for(phi, size, x, like):
    """Return the operands for so many of the rows x of attention, where the unit takes their projections.

    Maps with one log scale for a row may project a chunk twice, the second time by floats; theirs always are.
    """
    return pack_frequencies(phi, size, x, like, phi.per_feature and phi.omega.size > 0)


@inner
def no_projections(like):
    """Return the stand-in for projections that floats are to take."""
    return window(like, 0, 0), 0


@inner
def project(unit, p, x, at, dim, rows, mask, mask_at):
    """Return projections of rows of x, those of masked ones 0, and how far a row is from the next."""
    if p.columns == 0:
        return no_projections(p.found)
    for j in range(rows):
        if mask.size > 0 and not mask[mask_at + j]:
            for part in range(p.given):
                window(p.rows, (part * p.size + j) * p.dim, p.dim)[:] = 0
        else:
            pack_row(x, at + j * dim, dim, p.rows, j * p.dim, p.size * p.dim, p.given)
    multiply(
        unit, p.rows, 0, p.dim, BLOCK, p.size * p.dim, p.frequencies, 0, p.columns, p.dim // 2 * p.columns,
        (p.given, PARTS, PARTS), p.found, 0, p.columns, pad(rows, BLOCK), p.columns, p.dim, False,
    )  # fmt: skip
    return whole(p.found), p.columns
