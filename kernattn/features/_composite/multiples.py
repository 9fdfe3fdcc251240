"""Maps of multiples of kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of, moderate_number
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG
from kernattn._sums.units import BAND, balance
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite.base import is_per_feature
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.tails import Tails


@final
@dataclass(frozen=True, eq=False, repr=False)
class ScaledMap(FeatureMap):
    r"""A map of c times the kernel of another, :math:`\phi = c^{1/2} \phi_0`.

    It is written ``c * phi``: the number multiplies the kernel, as in ``c * kernel``, and not the features.

    Parameters
    ----------
    factor : float
        The number c, positive.
    inner : FeatureMap
        The map :math:`\phi_0`.

    Raises
    ------
    ParameterError
        If the factor is no positive number.
    DTypeError
        If inner is no feature map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> (4 * ka.features.relu())(np.array([[1.0, -1.0]]))
    array([[2., 0.]])
    """

    factor: float
    inner: FeatureMap

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", moderate_number("factor", self.factor))
        instance_of("inner", self.inner, FeatureMap)

    @property
    def dim(self) -> int | None:
        return self.inner.dim

    def num_features_of(self, dim: int) -> int:
        return self.inner.num_features_of(dim)

    @lazy
    def spec(self) -> MapSpec | None:
        """The map as plain numbers, where the inner one has such, and its features stay near 1 or are logs."""
        spec = self.inner.spec
        if spec is None:
            return None
        amplitude = spec.amplitude * self.factor**0.5
        moderate = 2.0**-BAND <= amplitude <= 2.0**BAND
        return replace(spec, amplitude=amplitude) if spec.per_feature or moderate else None

    @property
    def _is_shared(self) -> bool:
        return self.inner._is_shared

    def scaled_query(self, x: Array) -> ScaledFeatures:
        return self._times(self.inner._scaled_features(x, False))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        return self._times(self.inner._scaled_features(x, True))

    def _times(self, part: ScaledFeatures) -> ScaledFeatures:
        part = balance(part)
        if is_per_feature(part):
            return ScaledFeatures(part.values, part.log_scale + log(self.factor) / 2)
        return ScaledFeatures(part.values * self.factor**0.5, part.log_scale)

    def redraw(self, rng: RNG = None) -> Self:
        return replace(self, inner=self.inner.redraw(rng))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.factor * self.inner.mean(x, y))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.factor * self.inner.bias(x, y))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.factor**2 * self.inner.variance(x, y))

    def _tails(self, x: Float64, y: Float64) -> Tails:
        return self.inner._tails(x, y)  # a factor leaves skewness as it is

    def _terms(self, x: Float64, y: Float64) -> Terms:
        inner, c = self.inner._terms(x, y), self.factor
        variance, size = inner.variance, inner.size
        return replace(
            inner,
            kernel=c * inner.kernel,
            bias=lambda n: c * inner.bias(n),
            variance=None if variance is None else lambda n: c**2 * variance(n),
            size=None if size is None else c * size,
        )
