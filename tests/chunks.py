"""Dask arrays for tests: in chunks, and in chunks of a number of rows that Dask does not know."""

import dask.array as da
import numpy as np


def chunked(array, *chunks):
    return da.from_array(array, chunks=chunks)


def unknown(array, rows):
    """The same rows, of numbers that Dask does not know."""
    array = chunked(array, rows, *array.shape[1:])
    return array.map_blocks(lambda block: block, chunks=((np.nan,) * array.numblocks[0], *array.chunks[1:]))
