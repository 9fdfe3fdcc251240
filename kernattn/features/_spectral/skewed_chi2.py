"""Random features of the skewed chi-squared kernel: those of logarithms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, like, namespace
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of
from kernattn._runtime.random import RNG
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.pairs import beyond, host_pairs
from kernattn.features._moments.tails import Tails
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.kernels import SkewedChi2


@final
@dataclass(frozen=True, eq=False, repr=False)
class SkewedChi2Features(FeatureMap):
    r"""Random Fourier features of logarithms: :math:`\phi(x) = \psi(\log(x + c))`.

    Li, Ionescu and Sminchisescu (2010): the skewed chi-squared kernel is the hyperbolic secant kernel of the
    logarithms, whose features :math:`\psi` are; mean, bias and variance are theirs.
    """

    kernel: SkewedChi2
    inner: RandomFeatureMap

    def __post_init__(self) -> None:
        """Check the types."""
        instance_of("kernel", self.kernel, SkewedChi2)
        instance_of("inner", self.inner, RandomFeatureMap)

    @property
    def dim(self) -> int | None:
        """Input dimension d."""
        return self.inner.dim

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features."""
        return self.inner.num_features_of(dim)

    @property
    def spec(self) -> MapSpec | None:
        """None: the ops take the map as computed features."""
        return None

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), all of it above -c, log scale apart."""
        self.kernel.check_domain("x", x)
        xp = namespace(x=x)
        x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        return self.inner.scaled_query(xp.log(x + self.kernel.skewedness))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), all of it above -c, log scale apart."""
        return self.scaled_query(x)

    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design with fresh random numbers."""
        return replace(self, inner=self.inner.redraw(rng))

    @beyond
    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self.inner.mean(*self._logarithms(x, y)), x)

    @beyond
    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self.inner.bias(*self._logarithms(x, y)), x)

    @beyond
    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return like(self.inner.variance(*self._logarithms(x, y)), x)

    def _terms(self, x: Float64, y: Float64) -> Terms:
        """Return what is known of the estimates of pairs x, y (P, d) at any number of frequencies."""
        return self.inner._terms(*self._logarithms(x, y))

    def _tails(self, x: Float64, y: Float64) -> Tails:
        """Return those of the features of logarithms."""
        return self.inner._tails(*self._logarithms(x, y))

    def _logarithms(self, x: Array, y: Array) -> tuple[Float64, Float64]:
        pair = host_pairs(self.inner.omega.shape[1], x, y)
        for name, array in zip("xy", pair, strict=True):
            self.kernel.check_domain(name, array)
        return np.log(pair[0] + self.kernel.skewedness), np.log(pair[1] + self.kernel.skewedness)
