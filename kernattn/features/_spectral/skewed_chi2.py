"""Random features of the skewed chi-squared kernel: those of logarithms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, namespace
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of
from kernattn._runtime.random import RNG
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms
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
        instance_of("kernel", self.kernel, SkewedChi2)
        instance_of("inner", self.inner, RandomFeatureMap)

    @property
    def dim(self) -> int | None:
        return self.inner.dim

    def num_features_of(self, dim: int) -> int:
        return self.inner.num_features_of(dim)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        self.kernel.check_domain("x", x)
        xp = namespace(x=x)
        x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        return self.inner.scaled_query(xp.log(x + self.kernel.skewedness))

    def redraw(self, rng: RNG = None) -> Self:
        return replace(self, inner=self.inner.redraw(rng))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return self.inner._mean(*self._logarithms(x, y))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return self.inner._bias(*self._logarithms(x, y))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        return self.inner._variance(*self._logarithms(x, y))

    def _terms(self, x: Float64, y: Float64) -> Terms:
        return self.inner._terms(*self._logarithms(x, y))

    def _tails(self, x: Float64, y: Float64) -> Tails:
        return self.inner._tails(*self._logarithms(x, y))

    def _logarithms(self, x: Float64, y: Float64) -> tuple[Float64, Float64]:
        """Return log(x + c) and log(y + c) of pairs in the kernel's domain."""
        for name, rows in (("x", x), ("y", y)):
            self.kernel.check_domain(name, rows)
        return np.log(x + self.kernel.skewedness), np.log(y + self.kernel.skewedness)
