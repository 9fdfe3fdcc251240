r"""Maps of composite kernels: concatenation for sums, tensor products for products, and multiples.

The members are drawn independently, so means and variances follow from theirs:
:math:`\mathrm{Var} \sum_i t_i = \sum_i \mathrm{Var}\, t_i` and
:math:`\mathrm{Var} \prod_i t_i = \prod_i (\mathrm{Var}\, t_i + (E t_i)^2) - \prod_i (E t_i)^2`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from types import ModuleType
from typing import Any, Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, namespace
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of, shown
from kernattn._runtime.random import RNG, generator
from kernattn._sums.units import balance
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap, check_number
from kernattn.features._moments.bounds import Terms


@dataclass(frozen=True, eq=False, repr=False)
class Composite(FeatureMap):
    """A map made of maps that were drawn independently."""

    maps: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        given: object = self.maps
        if not isinstance(given, tuple) or not given:
            raise ParameterError(f"maps must be a tuple of feature maps, at least one; got {shown(given)}")
        for phi in given:
            instance_of("each of maps", phi, FeatureMap)
        dims = {phi.dim for phi in self.maps if phi.dim is not None}
        if len(dims) > 1:
            raise ShapeError(f"maps must take one input dimension; got {sorted(dims)}")
        if self.dim is not None:
            check_number(self, self.dim)

    @final
    @classmethod
    def _of(cls, *parts: FeatureMap) -> Self:
        """Return the composite of some maps, with the members of those that are such a composite themselves."""
        members = (part.maps if isinstance(part, cls) else (part,) for part in parts)
        return cls(tuple(chain.from_iterable(members)))

    @final
    @property
    def dim(self) -> int | None:
        """Input dimension d; None where all members take any."""
        return next((phi.dim for phi in self.maps if phi.dim is not None), None)

    @abstractmethod
    def _reduce(self, parts: Iterable[Any]) -> Any:
        """Return the sum or the product of the members' numbers: of features, or of kernels."""

    @abstractmethod
    def _reduce_variances(self, means: list[Float64], variances: list[Float64]) -> Float64:
        """Return the variance of the estimate from the members' means and variances."""

    @final
    def _terms(self, x: Float64, y: Float64) -> Terms:
        # at n times the members' own numbers of terms
        members = [phi._terms(x, y) for phi in self.maps]
        kernel = self._reduce(member.kernel for member in members)

        def means(n: int) -> list[Float64]:
            return [member.kernel + member.bias(n * member.number) for member in members]

        def variance(n: int) -> Float64:
            parts = [_variance(member, phi)(n * member.number) for member, phi in zip(members, self.maps, strict=True)]
            return self._reduce_variances(means(n), parts)

        return Terms(
            number=1,
            features=lambda n: self._reduce(member.features(n * member.number) for member in members),
            kernel=kernel,
            bias=lambda n: np.asarray(self._reduce(means(n)) - kernel),
            variance=variance,
        )

    @property
    def _is_shared(self) -> bool:
        return all(phi._is_shared for phi in self.maps)

    @abstractmethod
    def _join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the features that those of the members give."""

    @final
    def scaled_query(self, x: Array) -> ScaledFeatures:
        return self._join(namespace(x=x), [balance(phi._scaled_features(x, False)) for phi in self.maps])

    @final
    def scaled_key(self, x: Array) -> ScaledFeatures:
        return self._join(namespace(x=x), [balance(phi._scaled_features(x, True)) for phi in self.maps])

    @final
    def redraw(self, rng: RNG = None) -> Self:
        source = generator(rng)
        return replace(self, maps=tuple(phi.redraw(source) for phi in self.maps))


def is_per_feature(part: ScaledFeatures) -> bool:
    """Say whether the features are logarithms beside values of one."""
    return bool(part.values.shape[-1] == 1 < part.log_scale.shape[-1])


def _variance(terms: Terms, phi: FeatureMap) -> Callable[[int], Float64]:
    if terms.variance is None:
        raise NoClosedForm(f"no bound is known for {phi!r} as part of another map: it has no variance in closed form")
    return terms.variance
