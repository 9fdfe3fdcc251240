"""Groups of chunks on the way back: states at their starts are kept; a group's own are made again, and lie in cache."""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops.gated.loops import STEPS, K, V, row_of, rows_of_one_chunk
from kernattn.ops.gated.walk_loops import is_plain, sum_of_rows

GROUP, HELD = 8, 1 << 20
"""Chunks of a group; numbers that are held where all chunks can be one group."""


@inner
def groups_of(chunks, area):
    """Return how many chunks of a head are together, each with a state of so many numbers, and how many groups."""
    together = chunks if chunks * area <= HELD else GROUP
    return together, (chunks + together - 1) // together


@inner
def cut(given, own, sizes, begins):
    """Write where chunks of a head begin, and n; return how many there are."""
    n, d, e, channels, chunk = sizes
    count, start = 0, 0
    while start < n:
        begins[count] = start
        rows = min(chunk, n - start)
        of_keys = sum_of_rows(given.k, row_of(own, K, start), own[STEPS + K], rows, d)
        of_values = sum_of_rows(given.v, row_of(own, V, start), own[STEPS + V], rows, e)
        if not (of_keys < np.inf and of_values < np.inf and is_plain(given, own, start, rows, channels)):
            rows = rows_of_one_chunk(given, own, start, rows, sizes)
        start += rows
        count += 1
    begins[count] = n
    return count
