"""Do arrays fit an op? The check of what a graph or a caller hands to the op itself, past the public function."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from kernattn._arrays.namespaces import Array, check_alike, dtype_name
from kernattn._arrays.shapes import broadcast
from kernattn._maps.learnt import NUMBERS, plain
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan, check_heads, check_lengths
from kernattn.errors import (
    DTypeError,
    EmptyInputError,
    ParameterError,
    ShapeError,
    StateMismatchError,
)
from kernattn.ops.record import Input, Record


def check_fit(record: Record, leaves: Sequence[Any], constants: Sequence[Any]) -> None:
    """Raise unless axes of one name have one size, leading axes broadcast, and dtypes are those that the op takes."""
    arrays = {leaf.name: x for leaf, x in zip(record.leaves, leaves, strict=True) if x is not None}
    rest = iter(constants)
    values = {each.name: next(rest) for each in record.inputs if each.kind in ("map", "constant")}
    given = [each for each in record.inputs if each.kind in ("array", "sums") and each.leaves[0].name in arrays]
    _check_dtypes(given, arrays)
    sizes = {each.name: _sizes(each, arrays) for each in given}
    for each in record.inputs:
        if each.kind == "map":
            x, spec = arrays[str(each.rows)], plain(values[each.name])
            spec.check_dtype(str(each.rows), x)
            sizes[each.name] = _made_by(spec, each, x.shape[-1], arrays)
    _check_agreement(sizes, [each.name for each in given if each.kind == "sums"])
    _check_leading(record, given, leaves, arrays)
    for name, value in values.items():
        if isinstance(value, Plan):
            check_lengths(value, arrays["q"].shape[-2], arrays["k"].shape[-2])
            check_heads(value, record.leading(leaves, ("q", "k", "v")))
        elif type(value) is float and not isfinite(value):
            raise ParameterError(f"{name} must be a finite number; got {value}")


def _check_dtypes(given: Iterable[Input], arrays: dict[str, Array]) -> None:
    dtype = check_alike({each.name: arrays[each.name] for each in given if _is_rows(each)}, arrays)
    wide = "float64" if dtype == "float64" else "float32"
    for each in given:
        allowed = each.dtypes or (wide if each.kind == "sums" else dtype,)
        for leaf in each.leaves:
            if (got := dtype_name(arrays[leaf.name])) not in allowed:
                raise DTypeError(f"{leaf.name} must have dtype {' or '.join(allowed)}; got {got}")


def _is_rows(each: Input) -> bool:
    return each.kind == "array" and each.differentiable and not each.optional


def _sizes(each: Input, arrays: dict[str, Array]) -> dict[str, int]:
    """Return the sizes of an input's axes by name; not d where a map says what it must be."""
    sizes: dict[str, int] = {}
    for leaf in each.leaves:
        shape = tuple(arrays[leaf.name].shape)
        own = dict(zip(leaf.axes, shape[len(shape) - len(leaf.axes) :], strict=False))
        if len(shape) < len(leaf.axes) or any(sizes.setdefault(axis, size) != size for axis, size in own.items()):
            error = ShapeError if each.kind == "array" else StateMismatchError
            raise error(f"{leaf.name} must be ({', '.join(('...', *leaf.axes))}); got shape {shape}")
        if _is_rows(each) and 0 in shape:
            raise EmptyInputError(f"{leaf.name} must not be empty; got shape {shape}")
    if each.through:
        del sizes["d"]
    return sizes


def _made_by(spec: MapSpec, each: Input, dim: int, arrays: dict[str, Array]) -> dict[str, int]:
    """Return how many features and peaks a map makes of rows of a dimension, which must be its own."""
    spec.check(dim)
    for number in NUMBERS:
        x, own = arrays.get(f"{each.name}_{number}"), getattr(spec, number)
        if x is not None and (own is None or tuple(x.shape) != tuple(own.shape)):
            raise ShapeError(f"{number} must have the shape of the map's own; got {tuple(x.shape)}")
    m = spec.num_features_of(dim)
    return {"m": m, "p": m if spec.per_feature else 1}


def _check_agreement(sizes: dict[str, dict[str, int]], states: Sequence[str]) -> None:
    for axis in sorted({axis for own in sizes.values() for axis in own}):
        sized = {name: own[axis] for name, own in sizes.items() if axis in own}
        first = next(iter(sized.values()))
        if any(size != first for size in sized.values()):
            error = StateMismatchError if any(name in states for name in sized) else ShapeError
            raise error(f"axis {axis} must be of one size in {' and '.join(sized)}; got {sized}")


def _check_leading(record: Record, given: Iterable[Input], leaves: Sequence[Any], arrays: dict[str, Array]) -> None:
    record.leading(leaves, tuple(each.name for each in given if not each.lead))
    for each in given:
        full = record.leading(leaves, each.lead or (each.name,))
        for leaf in each.leaves:
            shape = tuple(arrays[leaf.name].shape)
            lead = shape[: len(shape) - len(leaf.axes)]
            if each.kind == "sums" and lead != full:
                raise StateMismatchError(f"{leaf.name} must be {(*full, *leaf.axes)}; got shape {shape}")
            if len(lead) > len(full) or broadcast(**{leaf.name: lead, "keys": full}) != full:
                raise ShapeError(f"{leaf.name} must broadcast to {(*full, *leaf.axes)}; got shape {shape}")
