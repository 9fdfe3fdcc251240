"""In how many parts the operands of an array are taken, by its dtype and by what was asked for."""

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._arrays.precision import float32_products
from kernattn.ops._numba.codegen.halves import BFLOAT16
from kernattn.ops._numba.codegen.registers import PAIRS
from kernattn.ops._numba.matrix.unit import why_not
from kernattn.ops._numba.tiles.layout import has_bits, kind_of

PARTS = 1 if PAIRS else 2
"""The most parts of what is given: by pairs a product takes half the time of one of floats, and two parts on both sides
need three or four."""

_SINGLE = np.dtype(np.float32)


class Operands(NamedTuple):
    """Parts of what is given and of what loops make: weights, and features."""

    given: int
    terms: int  # products of two given numbers take parts p and r where p + r is below
    made: int


def operands(array: Array) -> Operands | None:
    """Return how the unit takes products of arrays like this one, or None where float32 does.

    bfloat16 is one part, and float16 two, exactly: so all four products count. float32 arrays are rounded to two parts
    where it is asked for.
    """
    asked, dtype = float32_products(), array.dtype
    if has_bits(array, _SINGLE):
        is_one = kind_of(array) == BFLOAT16
        taken = Operands(1, 1, 1 if asked == "bfloat16" else 2) if is_one else Operands(2, 3, 2)
    elif asked == "float32" or dtype != _SINGLE:
        return None
    else:
        taken = Operands(2, 2, 2)
    return taken if taken.given <= PARTS and why_not() is None else None
