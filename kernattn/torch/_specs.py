"""Specs and maps that graphs hold by name: they are kept for good, as a graph may run at any time."""

from typing import Any

from kernattn._maps.learnt import plain
from kernattn._maps.spec import MapSpec
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap

_specs: dict[str, MapSpec] = {}
_maps: dict[Any, FeatureMap] = {}


def keep_spec(spec: MapSpec) -> str:
    """Keep a spec, of plain numbers, and return the name of its content."""
    spec = plain(spec)
    _specs.setdefault(spec.content, spec)
    return spec.content


def spec_of(name: str) -> MapSpec:
    """Return the spec of that name."""
    if name not in _specs:
        raise ParameterError(
            "the map of a traced graph is not known in this process, and a graph holds no more of it than a name: "
            "trace a call with the same map here first, or export with backend='reference'"
        )
    return _specs[name]


def keep_map(phi: FeatureMap) -> None:
    """Keep a map and its specs."""
    for spec in (phi.query_spec, phi.key_spec):
        if spec is not None:
            keep_spec(spec)
    _maps[phi._content[2]] = phi


def map_of(draw: str) -> FeatureMap:
    """Return the map of that name."""
    return _maps[draw]


class KeptMap:
    """A map while a graph is made: the names of its specs and its draw, and the fingerprint of its states."""

    def __init__(self, fingerprint: int, *content: str | None) -> None:
        self.fingerprint, self._content = fingerprint, content

    def _admit_to_graphs(self) -> bool:
        return True


def names_of(phi: FeatureMap) -> tuple[Any, ...]:
    """Keep a map, and return what makes a `KeptMap` of it."""
    phi._admit_to_graphs()
    return phi.fingerprint, *phi._content
