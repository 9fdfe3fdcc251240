"""Checks of shapes: what must be equal, and what must broadcast."""

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._arrays.shapes import broadcast
from kernattn.errors import DTypeError, ShapeError


def axis_kept(lead: tuple[int, ...], of_state: tuple[int, ...], tokens: int) -> str:
    """Return the hint of an error about a state's axes where a step was given its one token with the axis of tokens."""
    kept = tokens == 1 and lead == (*of_state, 1)
    return "; a step takes a token without the axis of tokens, such as k[..., 0, :]" if kept else ""


def leading(axes: int, **arrays: Array) -> tuple[int, ...]:
    """Return the broadcast leading axes of the arrays."""
    return broadcast(**{name: tuple(array.shape[:-axes]) for name, array in arrays.items()})


def equal(what: str, **sizes: int) -> None:
    """Raise unless all sizes are the same."""
    first, *others = sizes.values()
    if any(size != first for size in others):
        raise ShapeError(f"{what} must be the same for {' and '.join(sizes)}; got {sizes}")


def check_row(name: str, array: Array, shape: tuple[int, ...], tokens: bool, dtypes: tuple[str, ...]) -> None:
    """Raise unless an array of rows broadcasts against the keys' axes but the last, in one way."""
    if dtype_name(array) not in dtypes:
        how = f"; where it is 1 for tokens, as tokenizers make it, give {name} != 0" if dtypes == ("bool",) else ""
        raise DTypeError(f"{name} must have dtype {' or '.join(dtypes)}; got {dtype_name(array)}{how}")
    if array.ndim > len(shape) or any(
        size not in (1, full) for size, full in zip(array.shape[::-1], shape[::-1], strict=False)
    ):
        queries = tokens and array.ndim == len(shape) + 1 and array.shape[-2] == 1
        how = f"; without the axis of queries, give {name}[..., 0, :]" if queries else ""
        raise ShapeError(
            f"{name} must broadcast to {shape}, the keys' axes but the last; got {tuple(array.shape)}{how}"
        )
    if tokens and (array.ndim < 1 or array.shape[-1] != shape[-1]):
        raise ShapeError(f"{name} must have {shape[-1]} entries on its last axis; got shape {tuple(array.shape)}")
    given, end = tuple(array.shape), array.ndim - tokens
    ones = (1,) * (len(shape) - len(given))
    if (
        ones
        and any(n > 1 for n in given[:end])
        and all(n in (1, full) for n, full in zip(given[:end], shape, strict=False))
    ):
        raise ShapeError(
            f"{name} must say which of the keys' axes {shape} it has, as the first and the last fit: "
            f"give it the shape {(*given[:end], *ones, *given[end:])} or {(*ones, *given)}; got {given}"
        )
