"""The additive chi-squared kernel's spectrum, sampled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, namespace, zeros
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import finite_number, positive_integer
from kernattn.errors import ParameterError
from kernattn.features._base.deterministic import DeterministicMap
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.pairs import bias_of
from kernattn.kernels import AdditiveChi2

INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}  # Vedaldi and Zisserman, section 5
MOST = 1024  # samples: then the bias is that of rounding
LARGEST = 2**16


@final
@dataclass(frozen=True, eq=False, repr=False)
class AdditiveChi2Features(DeterministicMap):
    r"""The additive chi-squared kernel's spectrum, sampled: :math:`M = (2n - 1) d` features for n samples.

    Vedaldi and Zisserman (2012), equation 11. Each axis gives :math:`\sqrt{x L}` and, for j = 1 to n - 1,
    :math:`\sqrt{2 x L\, \mathrm{sech}(\pi j L)}\,[\cos(j L \log x), \sin(j L \log x)]`; 0 gives 0. Nothing is random:
    the error is `bias`. Features are ordered by j, then axis, as scikit-learn's AdditiveChi2Sampler orders them.
    """

    samples: int
    interval: float

    def __post_init__(self) -> None:
        if positive_integer("samples", self.samples) > LARGEST or not 0 < finite_number("interval", self.interval) <= 1:
            raise ParameterError(
                f"samples must be at most {LARGEST}, and interval in (0, 1]; got {self.samples} and {self.interval}"
            )

    @classmethod
    def _sample(cls, kernel: AdditiveChi2, number: int, dim: int, rng: np.random.Generator) -> Self:
        """Return the map of M = (2n - 1) d features; nothing is drawn."""
        samples, rest = divmod(number + dim, 2 * dim)
        if rest or samples < 1:
            raise ParameterError(
                f"num_features must be an odd multiple of dim for AdditiveChi2, as 1, 3, 5 times {dim}; got {number}"
            )
        return cls._of_samples(samples)

    @classmethod
    def _of_samples(cls, samples: int) -> Self:
        r"""Return the map with :math:`L = (2n)^{-1/2}` beyond the three n that the paper gives."""
        return cls(samples, INTERVALS.get(samples, (2 * samples) ** -0.5))

    def num_features_of(self, dim: int) -> int:
        return positive_integer("dim", dim) * (2 * self.samples - 1)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), none of it negative, with a log scale of 0."""
        AdditiveChi2().check_domain("x", x)
        xp = namespace(x=x)
        dtype = accumulation_dtype(xp, x)
        x = xp.astype(x, dtype, copy=False)
        log = xp.log(xp.where(x == 0, xp.ones_like(x), x))
        root = xp.sqrt(self.interval * x)
        parts = [root]
        for j in range(1, self.samples):
            weighted = root * float(np.sqrt(2 / np.cosh(np.pi * j * self.interval)))
            parts += [weighted * xp.cos(j * self.interval * log), weighted * xp.sin(j * self.interval * log)]
        return ScaledFeatures(xp.concat(parts, axis=-1), zeros(xp, (*x.shape[:-1], 1), dtype, x))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self.mean(x, y), AdditiveChi2().pairs(x, y))

    def _terms(self, x: Float64, y: Float64) -> Terms:
        kernel, dim = AdditiveChi2().pairs(x, y), x.shape[-1]

        @cache
        def bias(samples: int) -> Float64:
            return np.asarray(self._of_samples(samples).mean(x, y) - kernel)

        return Terms(
            number=self.samples,
            features=lambda n: dim * (2 * n - 1),
            kernel=kernel,
            bias=lambda n: bias(min(n, MOST)),
            variance=lambda n: np.zeros_like(kernel),
        )
