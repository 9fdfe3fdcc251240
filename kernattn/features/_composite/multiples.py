"""Maps of multiples of kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Self, final

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of, moderate_number
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG
from kernattn._sums.units import BAND, balanced
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite.base import is_per_feature
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.pairs import beyond
from kernattn.features._moments.tails import Tails


@final
@dataclass(frozen=True, eq=False, repr=False)
class Multiple(FeatureMap):
    r"""A multiple of a map: :math:`\phi(x)^T \phi(y) = c\, \phi_0(x)^T \phi_0(y)`; see :func:`multiple`."""

    factor: float
    inner: FeatureMap

    def __post_init__(self) -> None:
        """Check the factor and the map."""
        object.__setattr__(self, "factor", moderate_number("factor", self.factor))
        instance_of("phi", self.inner, FeatureMap)

    @property
    def dim(self) -> int | None:
        """Input dimension d; None where any is taken."""
        return self.inner.dim

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""
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

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of queries x (..., n, d), log scale apart."""
        return self._times(self.inner.scaled_query(x))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of keys x (..., n, d), log scale apart."""
        return self._times(self.inner.scaled_key(x))

    def _times(self, part: ScaledFeatures) -> ScaledFeatures:
        part = balanced(part)
        if is_per_feature(part):
            return ScaledFeatures(part.values, part.log_scale + log(self.factor) / 2)
        return ScaledFeatures(part.values * self.factor**0.5, part.log_scale)

    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design with fresh random numbers."""
        return replace(self, inner=self.inner.redraw(rng))

    @beyond
    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor * self.inner.mean(x, y)

    @beyond
    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor * self.inner.bias(x, y)

    @beyond
    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor**2 * self.inner.variance(x, y)

    def _tails(self, x: Float64, y: Float64) -> Tails:
        """Return the inner map's: a factor leaves skewness as it is."""
        return self.inner._tails(x, y)

    def _terms(self, x: Float64, y: Float64) -> Terms:
        """Return what is known of the estimates of pairs x, y (P, d) at any number of the inner map's terms."""
        inner, c = self.inner._terms(x, y), self.factor
        variance, size = inner.variance, inner.size
        return replace(
            inner,
            kernel=c * inner.kernel,
            bias=lambda n: c * inner.bias(n),
            variance=None if variance is None else lambda n: c**2 * variance(n),
            size=None if size is None else c * size,
        )


def multiple(factor: float, phi: FeatureMap) -> Multiple:
    r"""Return :math:`c^{1/2} \phi`, which estimates c times the kernel of the map.

    Parameters
    ----------
    factor : float
        The number c, positive.
    phi : FeatureMap
        The map.

    Returns
    -------
    Multiple
        The map.

    Raises
    ------
    ParameterError
        If the factor is no positive number.
    DTypeError
        If phi is no feature map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.features.multiple(4.0, ka.features.relu())(np.array([[1.0, -1.0]]))
    array([[2., 0.]])
    """
    return Multiple(factor, phi)
