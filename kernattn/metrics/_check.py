"""Checks of the arrays that metrics take."""

from __future__ import annotations

from kernattn._array import Array, check_floating
from kernattn.errors import EmptyInputError, ShapeError

__all__ = ["broadcasts", "filled", "redraws"]


def broadcasts(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise unless the array broadcasts to the shape."""
    filled(name, array)
    given = tuple(array.shape)
    fits = len(given) <= len(shape) and all(a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False))
    if not fits:
        raise ShapeError(f"{name} must broadcast to {shape}; got shape {given}")


def filled(name: str, array: Array) -> None:
    """Raise unless it is an array of real floating dtype without an empty axis."""
    check_floating(name, array)
    if 0 in tuple(array.shape):
        raise EmptyInputError(f"no axis of {name} may have length 0; got shape {tuple(array.shape)}")


def redraws(name: str, array: Array) -> int:
    """Return R, the number of redraws on the first axis of an array (R, ...), which must be at least 2."""
    filled(name, array)
    if array.ndim < 1 or array.shape[0] < 2:
        raise ShapeError(
            f"{name} must be (R, ...) with R >= 2 redraws on the first axis; got shape {tuple(array.shape)}"
        )
    return int(array.shape[0])
