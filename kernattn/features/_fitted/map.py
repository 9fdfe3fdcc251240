"""A map whose numbers were learnt from data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of, one_of, positive_integer
from kernattn.errors import ShapeError
from kernattn.features._base.deterministic import DeterministicMap
from kernattn.kernels import Kernel
from kernattn.ops.features import scaled

KINDS = "hedgehog", "exponential", "omega"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Fitted(DeterministicMap):
    r"""A map that `kernattn.features.fit` learnt; `kind` says what of it is learnt.

    It is a number of plain arrays, as maps that are drawn are: every form of attention takes it, it is saved, and
    nothing of it is random any more. `redraw` returns the map itself.

    Attributes
    ----------
    kernel : Kernel
        The kernel whose attention, or whose matrix, it was fitted to.
    kind : str
        "hedgehog", "exponential" or "omega".
    queries : MapSpec
        The map of queries as plain numbers; of keys too where `keys` is None.
    keys : MapSpec or None
        The map of keys as plain numbers.
    error : float
        Its relative error on rows that it was not fitted to, root mean square.
    random : str
        The name of the random estimator that was best on the same rows.
    random_error : float
        The relative error of that one's best draw there.
    """

    kernel: Kernel
    kind: str
    queries: MapSpec
    keys: MapSpec | None
    error: float
    random: str
    random_error: float

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        instance_of("queries", self.queries, MapSpec)
        if self.keys is not None:
            sides = self.queries, self.keys
            sizes = [(spec.dim, spec.per_feature, spec.num_features_of(spec.dim or 1)) for spec in sides]
            if sizes[0] != sizes[1]:
                raise ShapeError("queries and keys must be maps of rows of one dimension, to as many features")

    @property
    def dim(self) -> int | None:
        return self.queries.dim

    def num_features_of(self, dim: int) -> int:
        return self.queries.num_features_of(positive_integer("dim", dim))

    @property
    def spec(self) -> MapSpec | None:
        """The map as plain numbers; None where queries and keys have two."""
        return self.queries if self.keys is None else None

    @property
    def query_spec(self) -> MapSpec:
        """The map of queries as plain numbers."""
        return self.queries

    @property
    def key_spec(self) -> MapSpec:
        """The map of keys as plain numbers."""
        return self.queries if self.keys is None else self.keys

    def scaled_query(self, x: Array) -> ScaledFeatures:
        return scaled(x, self.query_spec)

    def scaled_key(self, x: Array) -> ScaledFeatures:
        return scaled(x, self.key_spec)

    def _bias(self, x: Float64, y: Float64) -> Float64:
        bias: Float64 = self.mean(x, y) - self.kernel.pairs(x, y)
        return bias
