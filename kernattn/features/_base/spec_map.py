"""Maps that are plain numbers."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import positive_integer
from kernattn.features._base.map import FeatureMap
from kernattn.ops.features import scaled


class SpecMap(FeatureMap):
    """A map that its spec says whole; queries and keys share it."""

    @property
    @abstractmethod
    def spec(self) -> MapSpec:
        """The map as plain numbers."""

    @final
    @property
    def dim(self) -> int | None:
        return self.spec.dim

    @final
    def num_features_of(self, dim: int) -> int:
        return self.spec.num_features_of(positive_integer("dim", dim))

    @final
    def scaled_query(self, x: Array) -> ScaledFeatures:
        return scaled(x, self.spec)
