"""Checks of the arrays that metrics take, and their sizes."""

from functools import reduce
from types import ModuleType
from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, check_floating
from kernattn._runtime.checks import finite_number, shown
from kernattn._sums.units import octaves_of, shift_octaves
from kernattn.errors import EmptyInputError, ParameterError, ShapeError


def check_broadcasts(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise unless the array broadcasts to the shape."""
    check_filled(name, array)
    given = tuple(array.shape)
    fits = len(given) <= len(shape) and all(a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False))
    if not fits:
        raise ShapeError(f"{name} must broadcast to {shape}; got shape {given}")


def check_filled(name: str, array: Array) -> None:
    """Raise unless it is an array of real floating dtype without an empty axis."""
    check_floating(name, array)
    if 0 in tuple(array.shape):
        raise EmptyInputError(f"no axis of {name} may have length 0; got shape {tuple(array.shape)}")


def check_share(name: str, value: float) -> float:
    """Return a number that must lie strictly between 0 and 1."""
    if not 0 < (number := finite_number(name, value)) < 1:
        raise ParameterError(f"{name} must lie strictly between 0 and 1; got {shown(value)}")
    return number


def count_redraws(name: str, array: Array) -> int:
    """Return R, the number of redraws on the first axis of an array (R, ...), which must be at least 2."""
    check_filled(name, array)
    if array.ndim < 1 or array.shape[0] < 2:
        raise ShapeError(
            f"{name} must be (R, ...) with R >= 2 redraws on the first axis; got shape {tuple(array.shape)}"
        )
    return int(array.shape[0])


def scale_down(xp: ModuleType, *arrays: Array, axis: int | tuple[int, ...]) -> tuple[list[Array], Array]:
    """Return arrays in their accumulation dtype over powers of two near their size, where that is far from 1.

    There is one power for all numbers along `axis`, and of all arrays, which have one shape but for lengths along it;
    the second result are the exponents, without these axes.
    """
    wide = [xp.astype(array, accumulation_dtype(xp, array), copy=False) for array in arrays]
    tops = (xp.max(xp.abs(array), axis=axis, keepdims=True) for array in wide)
    octaves = octaves_of(xp, reduce(xp.maximum, tops))
    if not anywhere(xp.all(octaves == 0)):  # traced arrays cannot tell
        wide = [shift_octaves(xp, array, -octaves) for array in wide]
    return wide, xp.squeeze(octaves, axis=axis)


def scale_back(xp: ModuleType, values: Array, octaves: Array, like: Array) -> Any:
    """Return values 2^octaves in the dtype of an array: infinite where that is beyond it."""
    return xp.astype(shift_octaves(xp, values, octaves), like.dtype, copy=False)
