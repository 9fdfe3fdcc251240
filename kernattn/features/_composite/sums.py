"""Maps of sums of kernels: features side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, without_flags
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.peaked import finite
from kernattn._sums.units import is_unscaled, multiply_out
from kernattn.features._composite.base import Composite, is_per_feature


@final
@dataclass(frozen=True, eq=False, repr=False)
class Concatenated(Composite):
    r"""The features of all maps, side by side, of the sum of their kernels: :math:`\sum_i \phi_i(x)^T \phi_i(y)`.

    It is written ``phi1 + phi2`` or, of many maps, ``sum(maps)``, and M is the sum of the members' numbers of features.
    Mean, bias and variance are the sums of theirs, as of maps that were drawn independently: give them different seeds.

    Parameters
    ----------
    maps : tuple of FeatureMap
        The maps, of one input dimension.

    Raises
    ------
    ParameterError
        If there is none.
    DTypeError
        If one is no feature map.
    ShapeError
        If their input dimensions differ.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.polynomial(1) + ka.features.polynomial(2)
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 1 + 1^2
    array([[2.]])
    """

    def num_features_of(self, dim: int) -> int:
        return sum(phi.num_features_of(dim) for phi in self.maps)

    @without_flags
    def _compute(self, x: Array, key: bool) -> Array:
        return multiply_out(self._scaled_features(x, key), x, own=True)

    def _project(self, x: Array, matrix: Float64, backend: str | None) -> Array:
        ends = np.cumsum([phi.num_features_of(x.shape[-1]) for phi in self.maps[:-1]])
        parts = zip(self.maps, np.split(matrix, ends), strict=True)
        return reduce(add, (phi._project(x, rows, backend) for phi, rows in parts))

    def _reduce(self, parts: Iterable[Any]) -> Any:
        return sum(parts)

    def _reduce_variances(self, means: list[Float64], variances: list[Float64]) -> Float64:
        return reduce(add, variances)

    def _join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the members' features side by side; scales of rows become the largest of them."""
        if all(is_unscaled(part) for part in parts):
            return ScaledFeatures(xp.concat([part.values for part in parts], axis=-1), parts[0].log_scale)
        if all(part.log_scale.shape[-1] == 1 for part in parts):
            unit = finite(xp, reduce(xp.maximum, (part.log_scale for part in parts)))  # (..., n, 1)
            return ScaledFeatures(xp.concat([p.values * xp.exp(p.log_scale - unit) for p in parts], axis=-1), unit)
        if all(is_per_feature(part) for part in parts):
            return ScaledFeatures(parts[0].values, xp.concat([part.log_scale for part in parts], axis=-1))
        wide = [xp.broadcast_arrays(*part) for part in parts]
        return ScaledFeatures(*(xp.concat([part[i] for part in wide], axis=-1) for i in (0, 1)))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return reduce(add, (phi.mean(x, y) for phi in self.maps))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return reduce(add, (phi.bias(x, y) for phi in self.maps))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        return reduce(add, (phi.variance(x, y) for phi in self.maps))
