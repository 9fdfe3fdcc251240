"""What members check, and the functions that they share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, check_floating, constant, namespace
from kernattn._arrays.shapes import broadcast
from kernattn.attention._check_gates import refused_logs
from kernattn.errors import EmptyInputError, ParameterError, ShapeError


def check_rows(**given: tuple[Array, str]) -> None:
    """Raise unless last axes of one letter have one size, those before them broadcast, and all hold floats."""
    sizes: dict[str, int] = {}
    leads, beside = {}, ""
    for name, (x, axes) in given.items():
        check_floating(name, x)
        shape = tuple(x.shape)
        own = shape[max(0, len(shape) - len(axes)) :]
        if 0 in shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {shape}")
        if len(own) < len(axes) or any(sizes.setdefault(*each) != each[1] for each in zip(axes, own, strict=True)):
            wanted = "".join(f", {sizes.get(axis, axis)}" for axis in axes)
            raise ShapeError(f"{name} must be (...{wanted}){beside}; got shape {shape}")
        leads[name] = shape[: len(shape) - len(axes)]
        beside = beside or f" beside {name} {shape}"
    broadcast(**leads)


def check_own_logs(**given: Array) -> None:
    """Raise where a log of a decay is above 0, by the name that its member has for it."""
    if (why := refused_logs(**given)) is not None:
        raise ParameterError(why)


def check_heads(what: str, array: Array, **numbers: Array) -> None:
    """Raise unless there is a number for each head of an array (..., heads, n)."""
    for name, number in numbers.items():
        if not _fits(number.shape, array.shape[:-1]):
            got = f"{tuple(array.shape)} and {tuple(number.shape)}"
            raise ShapeError(f"{what} must be (..., heads, n) and {name} (heads,); got {got}")


def check_channels(what: str, array: Array, **numbers: Array) -> None:
    """Raise unless there is a number for each head and channel of an array (..., heads, n, d)."""
    for name, number in numbers.items():
        check_floating(name, number)
        if array.ndim < 2 or number.ndim < 1 or not _fits(number.shape, (*array.shape[:-2], array.shape[-1])):
            got = f"{tuple(array.shape)} and {tuple(number.shape)}"
            raise ShapeError(f"{what} must be (..., heads, n, d) and {name} (heads, d); got {got}")


def _fits(own: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether an array broadcasts to these axes."""
    return len(own) <= len(axes) and all(x in (1, y) for x, y in zip(own[::-1], axes[::-1], strict=False))


def log_1p_exp(xp: Any, x: Array) -> Array:
    return xp.logaddexp(x, xp.zeros_like(x))


def log_sigmoid(xp: Any, x: Array) -> Array:
    return -log_1p_exp(xp, -x)


def constants(logs: list[float], like: Array) -> Array:
    """Return logs of decays (heads, 1) beside an array."""
    xp = namespace(like=like)
    check_floating("like", like)
    return constant(xp, np.array(logs)[:, None], accumulation_dtype(xp, like), like)


def widen(xp: Any, **arrays: Array) -> list[Array]:
    """Return arrays in the dtype in which sums over them run."""
    for name, array in arrays.items():
        check_floating(name, array)
    return [xp.astype(array, accumulation_dtype(xp, array), copy=False) for array in arrays.values()]
