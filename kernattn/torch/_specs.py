"""Specs in graphs: an op takes a map by the name of its content, and tensors in place of some of its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import torch

from kernattn._arrays.namespaces import Array, namespace, to_numpy64
from kernattn._maps.spec import MapSpec
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap

NUMBERS = ("omega", "offset", "row_weights")
Spec: TypeAlias = MapSpec | str
"""A map as numbers, or its name."""

_known: WeakValueDictionary[str, MapSpec] = WeakValueDictionary()
_maps: dict[Any, FeatureMap] = {}
_kept: dict[str, MapSpec] = {}  # those that graphs name, which may run at any time


@dataclass(frozen=True, eq=False, repr=False)
class TensorSpec(MapSpec):
    """A spec some of whose numbers are tensors, of the shapes that they have in `base`."""

    base: MapSpec | None = None
    of_tensors = True

    def __post_init__(self) -> None:
        """Nothing: whoever gives the tensors has checked them."""

    def check(self, dim: int) -> None:
        """Raise unless the parts are for rows of that dimension."""
        _base(self).check(dim)

    def check_dtype(self, name: str, x: Array) -> None:
        """Raise unless x is a tensor as well."""
        namespace(**{name: x}, phi=next(number for number in numbers_of(self) if number is not None))


def _base(spec: MapSpec) -> MapSpec:
    if not isinstance(spec, TensorSpec):
        return spec
    assert spec.base is not None
    return spec.base


def numbers_of(spec: Spec) -> tuple[Any, Any, Any]:
    """Return the tensors among a spec's numbers, None in place of each other one."""
    if not isinstance(spec, TensorSpec):
        return None, None, None
    omega, offset, row_weights = (
        number if isinstance(number, torch.Tensor) else None for number in (getattr(spec, name) for name in NUMBERS)
    )
    return omega, offset, row_weights


def name_of(spec: Spec) -> str:
    """Return the name by which an op finds a spec again while it lives."""
    if isinstance(spec, str):
        return spec
    spec = _base(spec)
    _known.setdefault(spec.content, spec)
    return spec.content


def keep(phi: FeatureMap) -> None:
    """Keep a map and its specs for good: graphs will name them."""
    for spec in (phi.query_spec, phi.key_spec):
        keep_spec(spec)
    _maps[phi._content[2]] = phi


def keep_spec(spec: MapSpec | None) -> None:
    """Keep a spec for good."""
    if spec is not None:
        name = name_of(spec)
        _kept[name] = _known[name]


def map_of(draw: str) -> FeatureMap:
    """Return the map of that name, which was kept."""
    return _maps[draw]


def resolved(spec: Spec, *numbers: torch.Tensor | None) -> MapSpec:
    """Return the spec of that name, with tensors in place of some of its numbers."""
    if isinstance(spec, str):
        found = _known.get(spec)
        if found is None:
            raise ParameterError(
                "the map of a traced graph is not known in this process, and a graph holds no more of it than a name"
            )
        spec = found
    given: dict[str, Any] = {name: to_numpy64(x) for name, x in zip(NUMBERS, numbers, strict=False) if x is not None}
    return replace(_base(spec), **given) if given else _base(spec)
