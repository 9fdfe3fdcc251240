"""Maps of sums of kernels: features side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import ModuleType
from typing import Any, final

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.peaked import finite
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite.base import Composite, is_per_feature
from kernattn.features._moments.pairs import beyond


@final
@dataclass(frozen=True, eq=False, repr=False)
class Concatenated(Composite):
    r"""All features: :math:`\phi(x)^T \phi(y) = \sum_i \phi_i(x)^T \phi_i(y)`; see :func:`concatenate`."""

    def num_features_of(self, dim: int) -> int:
        """Return M, the sum of the members' numbers of features."""
        return sum(phi.num_features_of(dim) for phi in self.maps)

    def _reduce(self, parts: Iterable[Any]) -> Any:
        """Return the sum of the members' numbers."""
        return sum(parts)

    def _reduce_variances(self, means: list[Float64], variances: list[Float64]) -> Float64:
        """Return the sum of the members' variances."""
        return reduce(add, variances)

    def _join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the members' features side by side; scales of rows become the largest of them."""
        if all(part.log_scale.shape[-1] == 1 for part in parts):
            unit = finite(xp, reduce(xp.maximum, (part.log_scale for part in parts)))  # (..., n, 1)
            return ScaledFeatures(xp.concat([p.values * xp.exp(p.log_scale - unit) for p in parts], axis=-1), unit)
        if all(is_per_feature(part) for part in parts):
            return ScaledFeatures(parts[0].values, xp.concat([part.log_scale for part in parts], axis=-1))
        wide = [xp.broadcast_arrays(*part) for part in parts]
        return ScaledFeatures(*(xp.concat([part[i] for part in wide], axis=-1) for i in (0, 1)))

    @beyond
    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.mean(x, y) for phi in self.maps))

    @beyond
    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.bias(x, y) for phi in self.maps))

    @beyond
    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.variance(x, y) for phi in self.maps))


def concatenate(*maps: FeatureMap) -> Concatenated:
    r"""Return the features of all maps side by side, :math:`\phi(x)^T \phi(y) = \sum_i \phi_i(x)^T \phi_i(y)`.

    It estimates the sum of the maps' kernels. Mean, bias and variance are the sums of theirs, as of maps that were
    drawn independently: give them different seeds.

    Parameters
    ----------
    *maps : FeatureMap
        The maps, of one input dimension.

    Returns
    -------
    Concatenated
        The map; M is the sum of the members' numbers of features.

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
    >>> phi = ka.features.concatenate(ka.features.polynomial(1), ka.features.polynomial(2))
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 1 + 1^2
    array([[2.]])
    """
    return Concatenated(maps)
