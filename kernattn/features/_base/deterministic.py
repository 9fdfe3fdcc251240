"""Deterministic maps: their estimate has no variance; most are the map of their own kernel, and have no bias either."""

from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, namespace, without_warnings
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.random import RNG, generator
from kernattn._sums.peaked import finite
from kernattn._sums.units import balance, multiply_out
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.pairs import check_pairs
from kernattn.features._moments.tails import Tails


class DeterministicMap(FeatureMap):
    """A map without random numbers."""

    @property
    def dim(self) -> int | None:
        return None

    @final
    @without_warnings
    def mean(self, x: Array, y: Array) -> Array:
        """Return phi(x).phi(y) for rowwise pairs: (..., d), (..., d) -> (...)."""
        check_pairs(self.dim, x, y)
        xp = namespace(x=x)
        self._check(x[..., None, :])
        self._check(y[..., None, :], "y")
        left, right = balance(self.scaled_query(x[..., None, :])), balance(self.scaled_key(y[..., None, :]))
        log = left.log_scale + right.log_scale  # (..., 1, M | 1)
        peak = xp.max(log, axis=-1, keepdims=True)
        products = left.values * right.values * xp.exp(log - finite(xp, peak))  # (..., 1, M)
        return multiply_out(ScaledFeatures(xp.sum(products, axis=-1, keepdims=True), peak), x)[..., 0, 0]

    @final
    def variance(self, x: Array, y: Array) -> Array:
        """Return 0 for every rowwise pair: (..., d), (..., d) -> (...)."""
        check_pairs(self.dim, x, y)
        return _zeros(x, y)

    def _terms(self, x: Float64, y: Float64) -> Terms:
        bias, features = self.bias(x, y), self.num_features_of(x.shape[-1])
        zeros = np.zeros_like(bias)
        return Terms(1, lambda n: features, self.mean(x, y) - bias, lambda n: bias, lambda n: zeros)

    def _tails(self, x: Float64, y: Float64) -> Tails:
        """Return 0, the skewness of a constant, for pairs x, y (P, d)."""
        return Tails(np.zeros(len(x)), 1)

    @final
    def redraw(self, rng: RNG = None) -> Self:
        """Return the map itself: there is nothing to draw."""
        generator(rng)
        return self


class ExactMap(DeterministicMap):
    """A map whose inner product is its kernel."""

    @final
    def bias(self, x: Array, y: Array) -> Array:
        """Return 0 for every rowwise pair: (..., d), (..., d) -> (...)."""
        check_pairs(self.dim, x, y)
        return _zeros(x, y)


def _zeros(x: Array, y: Array) -> Array:
    xp = namespace(x=x)
    zeros = xp.zeros_like(xp.astype(x, accumulation_dtype(xp, x), copy=False)) + xp.zeros_like(y)
    return xp.astype(xp.sum(zeros, axis=-1), x.dtype, copy=False)
