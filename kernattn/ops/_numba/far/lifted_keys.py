"""Keys with huge values stand some octaves below others: weights times such values would overflow as they are summed.

A key that is lifted by n stands in a unit 2^n above its features: its weights are at most about 2^-n. Exact, for n is
whole, and outputs are ratios of sums in one unit.
"""

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.far.clamped import ends, finite, within

USUAL, LARGE, HUGE = 0, 1, 2  # sizes of values


@inner
def _size(x):
    """Return the size of values x."""
    if within(x, x.dtype.type(1 / ends(x).large)):
        return USUAL
    return LARGE if within(x, x.dtype.type(1 / ends(x).huge)) else HUGE


@inner
def lift_of(size, like):
    """Return by how many octaves keys are lifted once values of a size were seen."""
    return like.dtype.type(ends(like).lift if size == HUGE else 0.0)


@inner
def rise_of(size, like):
    """Return by how many octaves keys may rise above the unit of their chunk beside values of a size."""
    return like.dtype.type(ends(like).rise if size == USUAL else ends(like).low_rise)


@inner
def lift(x):
    """Return by how many octaves a key with values x is lifted: 0 unless they are huge, and finite."""
    size = _size(x)
    return lift_of(size if size < HUGE or finite(x) else USUAL, x)


@inner
def count_alike_rows(x, at, rows, width, mask, mask_at, size):
    """Return how many rows can be taken together, and the largest size of values up to them.

    They are those before the first with NaN or infinity, or that one alone; and those before the first whose values are
    larger than any before: what comes later does not lift a row.
    """
    if _size(window(x, at, rows * width)) == USUAL:
        return rows, size
    for j in range(rows):
        if mask.size == 0 or mask[mask_at + j]:
            row = window(x, at + j * width, width)
            own = _size(row)
            if own == HUGE and not finite(row):
                return max(j, 1), size
            if own > size:
                if j > 0:
                    return j, size
                size = own
    return rows, size


@inner_exact
def absorbed_octaves(unit, lifted):
    """Return how much of a lift a unit cannot say: all of it where unit + lifted rounds to the unit, else nothing.

    Units are floats, so those of immense features are whole multiples of many octaves. Their weights are multiplied by
    2^-lifted instead, which is exact.
    """
    return lifted if unit + lifted == unit else lifted - lifted
