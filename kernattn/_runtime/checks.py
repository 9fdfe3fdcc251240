"""Checks of plain parameters; the errors name what was given and what is allowed."""

import os
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from math import prod
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.elsewhere import hint_at, object_meant
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError

HUGE = 1e100  # the largest size of a map's numbers: their squares and products do not overflow
MODERATE = 1e-30, 1e30  # a kernel's parameters: float32 holds them, their inverses and their roots
MOST = 2**31 - 1  # the largest size: an axis beyond it no compiled loop can index


def shown(value: Any) -> str:
    """Return a value as errors show it, in a line."""
    if isinstance(value, np.ndarray) and value.ndim:
        kind = "a masked" if isinstance(value, np.ma.MaskedArray) else "an"
        return f"{kind} array {value.dtype}{value.shape}"
    if type(value) in (list, tuple) and any(isinstance(each, np.ndarray) for each in value):
        return f"a {type(value).__name__} of {', '.join(map(shown, value))}"
    try:
        text = repr(value.item() if isinstance(value, np.ndarray) else value)
    except Exception:  # a repr of one's own, or an integer of more digits than Python prints
        return f"a {type(value).__name__}"
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= 200 else f"{text[:197]}..."


def summary(value: Any) -> str:
    """Return a dataclass as its repr would be, with the dtype and shape of an array in place of its numbers."""
    if not is_dataclass(value):
        return object.__repr__(value)
    return f"{type(value).__name__}({', '.join(f'{f.name}={_brief(getattr(value, f.name))}' for f in fields(value))})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    return f"({', '.join(map(_brief, value))},)" if type(value) is tuple else repr(value)


def checked_path(name: str, value: Any) -> Path:
    """Return `value` as a path, which must be a name that a file can have."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or not _encodes(text):
        raise ParameterError(f"{name} must be the name of a file, a string or a path-like object; got {shown(value)}")
    return Path(text)


def checked_target(name: str, value: Any) -> Path:
    """Return `value` as the path of a file that can be written: its directory is there."""
    path = checked_path(name, value)
    if path.is_dir():
        raise ParameterError(f"{name} must be the name of a file; got the directory {path}")
    if path.exists() and not path.is_file():  # as a file that is renamed would replace it
        raise ParameterError(f"{name} must be the name of a file; got the device {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} into")
    return path


def checked_folder(name: str, value: Any) -> Path:
    """Return `value` as the path of a folder, which may not be there yet."""
    path = checked_path(name, value)
    if path.exists() and not path.is_dir():
        raise ParameterError(f"{name} must be the name of a folder; got the file {path}")
    return path


def _encodes(text: str) -> bool:
    try:
        return bool(os.fsencode(text))
    except UnicodeEncodeError:
        return False


def instance_of(name: str, value: Any, kind: type, example: str = "") -> None:
    """Raise unless `value` is of a class of kernattn; this error says everywhere that it is another object."""
    if not isinstance(value, kind):
        hint = object_meant(value, kind)
        raise DTypeError(f"{name} must be a {kind.__name__}{example and f', {example}'}; got {shown(value)}{hint}")


def array_of(value: Any) -> NDArray[Any]:
    """Return a value as an array of NumPy; where it makes none, an empty array of objects, which no check takes.

    It makes none of a masked array, whose mask would be lost.
    """
    try:
        return np.empty(0, object) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    except Exception:  # ragged lists; tensors that require a gradient, lie elsewhere or hold no numbers raise anything
        return np.empty(0, object)


def as_numbers(name: str, values: object) -> NDArray[np.float64]:
    """Return parameters as an array of float64, which must be real numbers."""
    try:
        array = array_of(values)
        if array.dtype.kind in "bcSU" or (array.dtype.kind == "O" and not _are_real(array)):
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name} must be numbers; got {shown(values)}") from None


def _are_real(array: NDArray[Any]) -> bool:
    """Return whether the objects of an array, if any, are real numbers: None, which NumPy takes for NaN, is none."""
    return array.size > 0 and all(isinstance(each, Real) and not isinstance(each, bool) for each in array.flat)


def list_entries(name: str, value: Any, what: str) -> list[Any]:
    """Return the entries of `value`, which must have some; `what` says of what kind."""
    if not isinstance(value, Iterable):
        raise DTypeError(f"{name} must be {what}; got {shown(value)}")
    try:
        return list(value)
    except TypeError as error:  # of an array without axes, or a sparse one
        raise DTypeError(f"{name} must be {what}; got {shown(value)}") from error


def boolean(name: str, value: Any) -> bool:
    """Return `value`, which must be True or False."""
    if value is True or value is False:
        return value
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def positive_integer(name: str, value: Any) -> int:
    """Return `value` as an int, which must be a positive integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST:
        raise ParameterError(f"{name} must be a positive integer below 2**31; got {shown(value)}")
    return int(value)


def whole_number(name: str, value: Any) -> int:
    """Return `value` as an int, which must be a non-negative integer, such as a seed."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
        raise ParameterError(f"{name} must be a non-negative integer; got {shown(value)}")
    return int(value)


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value`, which must be one of the allowed names."""
    names = tuple(allowed)
    if not isinstance(value, str) or value not in names:
        hint = hint_at(name, value, names)
        raise ParameterError(f"{name} must be one of {', '.join(names)}; got {shown(value)}{hint}")
    return value


def finite_number(name: str, value: Any) -> float:
    """Return `value` as a float, which must be a finite real number."""
    try:
        number = np.nan if isinstance(value, bool | np.bool_) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise ParameterError(f"{name} must be a finite number; got {shown(value)}")
    return number


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a float, which must be a positive finite real number."""
    if (number := finite_number(name, value)) <= 0:
        raise ParameterError(f"{name} must be a positive number; got {shown(value)}")
    return number


def moderate_number(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as a float, which float32 must hold, and its inverse: positive, or 0 where that is allowed."""
    low, high = MODERATE
    if not (low <= (number := finite_number(name, value)) <= high or (zero and number == 0)):
        raise ParameterError(
            f"{name} must be a positive number from {low:g} to {high:g}{', or 0' * zero}; got {shown(value)}"
        )
    return number


def check_room(what: str, shape: tuple[int, ...], itemsize: int = 8) -> None:
    """Raise where an array of that shape is larger than the machine's memory, before anything is drawn for it."""
    size = prod(shape) * itemsize
    if (memory := _memory()) is not None and size > memory:
        needed = f"{size / 2**30:.1f}" if size < 2**100 else "more than 2**70"
        raise ParameterError(
            f"{what} of shape {shown(shape)} needs {needed} GiB; this machine has {memory / 2**30:.1f} GiB"
        )


def _memory() -> int | None:
    """Return how many bytes of memory there are, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def host_array(name: str, value: Any, shape: tuple[int | str, ...], dtypes: Iterable[str] = ("float64",)) -> None:
    """Raise unless `value` is a NumPy array of a dtype and a shape, a letter any length; not empty, nothing huge."""
    host_form(name, value, shape, dtypes)
    if value.dtype.kind == "f" and not np.max(np.abs(value)) <= HUGE:  # NaN included
        raise ParameterError(f"{name} must hold numbers up to {HUGE:g} in size; it holds larger ones, or NaN")


def host_form(name: str, value: Any, shape: tuple[int | str, ...], dtypes: Iterable[str] = ("float64",)) -> None:
    """Raise unless `value` is a NumPy array of a dtype and a shape, a letter any length; not empty."""
    names = tuple(dtypes)
    # NumPy makes the name of a dtype anew each time, which takes longer than all else here
    if type(value) is not np.ndarray or not (value.dtype.type.__name__ in names or value.dtype.name in names):
        raise DTypeError(f"{name} must be a NumPy array of {' or '.join(names)}; got {shown(value)}")
    fits = len(shape) == value.ndim and all(
        isinstance(wanted, str) or wanted == given for wanted, given in zip(shape, value.shape, strict=True)
    )
    if not fits:
        wanted = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        raise ShapeError(f"{name} must be of shape {wanted}; got {value.shape}")
    if 0 in value.shape:
        raise EmptyInputError(f"{name} must not be empty; got shape {value.shape}")
