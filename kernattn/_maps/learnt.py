"""Specs some of whose numbers are arrays of a framework, so that the framework can learn them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernattn._arrays.namespaces import Array, namespace, to_numpy64
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec

NUMBERS = ("omega", "offset", "row_weights")
"""What can be learnt of a spec."""


@dataclass(frozen=True, eq=False, repr=False)
class LearntSpec(MapSpec):
    """A spec some of whose numbers are a framework's arrays, of the shapes that they have in `base`."""

    base: MapSpec | None = None
    _of_arrays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check nothing: whoever gives the arrays has checked them."""

    def check(self, dim: int) -> None:
        plain(self).check(dim)

    def check_dtype(self, name: str, x: Array) -> None:
        """Raise unless x is an array of the framework as well."""
        namespace(**{name: x}, phi=next(number for number in numbers_of(self) if number is not None))


def plain(spec: MapSpec) -> MapSpec:
    """Return the spec of plain numbers that stands below one with arrays."""
    if not isinstance(spec, LearntSpec):
        return spec
    assert spec.base is not None
    return spec.base


def numbers_of(spec: MapSpec | None) -> tuple[Any, Any, Any]:
    """Return the framework's arrays among a spec's numbers, None in place of each other one."""
    if not isinstance(spec, LearntSpec):
        return None, None, None
    omega, offset, row_weights = (
        None if isinstance(number, np.ndarray | Chains) else number
        for number in (getattr(spec, name) for name in NUMBERS)
    )
    return omega, offset, row_weights


def with_given(spec: MapSpec, numbers: Sequence[Any]) -> MapSpec:
    """Return a spec of plain numbers with those that are given, in float64, in place of its own."""
    given: dict[str, Any] = {name: to_numpy64(x) for name, x in zip(NUMBERS, numbers, strict=True) if x is not None}
    return replace(spec, **given) if given else spec
