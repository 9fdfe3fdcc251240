"""Specs and maps in graphs: an op takes them by the name of their content."""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from kernattn._maps.learnt import plain
from kernattn._maps.spec import MapSpec
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap

Spec: TypeAlias = MapSpec | str
"""A map as numbers, or its name."""

_known: WeakValueDictionary[str, MapSpec] = WeakValueDictionary()
_maps: dict[Any, FeatureMap] = {}
_kept: dict[str, MapSpec] = {}  # those that graphs name, which may run at any time


def name_of(spec: Spec) -> str:
    """Return the name by which an op finds a spec again while it lives."""
    if isinstance(spec, str):
        return spec
    spec = plain(spec)
    _known.setdefault(spec.content, spec)
    return spec.content


def keep_map(phi: FeatureMap) -> None:
    """Keep a map and its specs for good: graphs will name them."""
    for spec in (phi.query_spec, phi.key_spec):
        if spec is not None:
            keep_spec(spec)
    _maps[phi._content[2]] = phi


def keep_spec(spec: MapSpec) -> str:
    """Keep a spec for good, and return its name."""
    name = name_of(spec)
    _kept[name] = _known[name]
    return name


def map_of(draw: str) -> FeatureMap:
    """Return the map of that name, which was kept."""
    return _maps[draw]


def spec_of(spec: Spec) -> MapSpec:
    """Return the spec of that name, of plain numbers."""
    if not isinstance(spec, str):
        return plain(spec)
    known = _known.get(spec)
    if known is None:
        raise ParameterError(
            "the map of a traced graph is not known in this process, and a graph holds no more of it than a name"
        )
    return known
