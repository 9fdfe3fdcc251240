"""Which features take their projections from the matrix unit."""

from kernattn._arrays.namespaces import Array
from kernattn.ops._numba.codegen.registers import PAIRS
from kernattn.ops._numba.matrix.operands import operands
from kernattn.ops._numba.tiles.packing import PackedMap

SERVED = not PAIRS
"""Is the unit faster? Frequencies have three parts: by pairs the loops of floats win."""

FEWEST = 256
"""Rows from which on frequencies are packed for them: it takes about as long as to project 128 rows by floats."""

NARROWEST = 32
"""Dimensions, and frequencies, from which on whole blocks are worth their zeros."""

MOST = 1 << 17
"""Entries of frequencies: their three parts are then at most 768 KiB, which the second-level cache holds."""

FASTER = 2  # than floats, roughly


def on_unit(x: Array, phi: PackedMap, n: int) -> bool:
    """Does the unit project n rows x of 16 bits?"""
    if not SERVED:
        return False
    entries = phi.dim * phi.frequencies
    served = phi.projects and n >= FEWEST and min(phi.dim, phi.frequencies) >= NARROWEST and entries <= MOST
    return served and x.dtype.itemsize == 2 and operands(x) is not None
