"""Dask arrays as these functions take them."""

from collections.abc import Sequence
from math import isnan
from typing import Any

import dask.array as da

from kernattn.errors import DTypeError, ShapeError

Lead = tuple[tuple[int, ...], ...]
"""Chunks of leading axes."""


def check_lazy(name: str, array: Any) -> None:
    """Raise unless an argument is a Dask array."""
    if not isinstance(array, da.Array):
        raise DTypeError(f"{name} must be a Dask array, as dask.array.from_array makes it; got {type(array).__name__}")


def check_sized(name: str, array: Any) -> None:
    """Raise unless an argument is a Dask array whose chunks have known sizes."""
    check_lazy(name, array)
    if any(map(isnan, array.shape)):
        raise ShapeError(
            f"{name} must have chunks of known sizes: call {name}.compute_chunk_sizes(); got {array.shape}"
        )


def whole_rows(name: str, array: Any) -> Any:
    """Return the array with one chunk along its last axis, whose size must be known."""
    if isnan(array.shape[-1]):
        raise ShapeError(f"{name} must have a known last axis; got shape {array.shape}")
    return array if array.numblocks[-1] == 1 else array.rechunk({array.ndim - 1: -1})


def drop_empty_chunks(array: Any) -> Any:
    """Return the array without the chunks that hold nothing, which a selection leaves."""
    return array.rechunk(tuple(tuple(size for size in sizes if size) for sizes in array.chunks))


def shared_chunks(axis: int, **arrays: Any) -> tuple[int, ...]:
    """Return the chunks of an axis, which must be those of all arrays whose size along it is not 1."""
    given = {name: a.chunks[axis] for name, a in arrays.items() if a.ndim >= -axis}
    wide = {name: chunks for name, chunks in given.items() if sum(chunks) != 1} or given
    (first, chunks), *others = wide.items()
    for name, theirs in others:
        if theirs != chunks:
            raise ShapeError(
                f"{first} and {name} must have the same chunks along axis {axis}: give {name}.rechunk({{"
                f"{arrays[name].ndim + axis}: {first}.chunks[{axis}]}}); got {_brief(chunks)} and {_brief(theirs)}"
            )
    return tuple(chunks)


def lead_chunks(**arrays: Any) -> Lead:
    """Return the chunks of the leading axes of all arrays (..., n, c) together."""
    axes = range(-max(a.ndim for a in arrays.values()), -2)
    return tuple(shared_chunks(axis, **arrays) for axis in axes)


def count_chunks(lead: Lead) -> tuple[int, ...]:
    """Return how many chunks each axis has."""
    return tuple(map(len, lead))


def _brief(chunks: Sequence[int]) -> str:
    return str(chunks) if len(chunks) <= 6 else f"({', '.join(map(str, chunks[:5]))}, ... {len(chunks)} in all)"
