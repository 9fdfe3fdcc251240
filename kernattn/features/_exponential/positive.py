"""Positive random features: exponentials of projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import HUGE, finite_number, shown
from kernattn._runtime.lazy import lazy
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features._moments.moments import Moments, cosine_products, exponential_products, of_even_terms
from kernattn.features._moments.tails import squared_skewness, squared_skewness_of_logs
from kernattn.features._spectral.map import RandomFeatureMap, check_exponential
from kernattn.projections import NORM_LAWS, Pair
from kernattn.projections._cut import cut_log_moment

LEAST_SUM = 0.03  # |x + y| below which cosh u is 1 + u^2 / 2 up to rounding, whose skewness no size changes


@dataclass(frozen=True, eq=False, repr=False)
class Exponential(RandomFeatureMap):
    r"""Features whose terms are :math:`B^d \exp(2A|\omega|^2 + B \omega^T(x + y))` times the factors of the rows.

    :math:`B = \sqrt{1 - 4A}`, and A is the tilt.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exponential(self.kernel)

    @property
    def _tilt(self) -> float:
        return 0.0

    def _moments(self, x: Float64, y: Float64) -> Moments:
        law, dim, d = self.projection.law(), self.projection.sphere(*self.omega.shape), x.shape[-1]
        tilt, log_power = self._tilt, self._log_powers(x, y)

        def cross(pair: Pair) -> Float64:
            if tilt and dim != d:
                raise NoClosedForm(
                    "no closed form is known for the variance of tilted features of constant norms whose padding was "
                    "dropped"
                )
            v2 = (1 - 4 * tilt) * np.sum((x + y) ** 2, axis=-1)
            row = 2 * self._row_log(x, y) + d * np.log1p(-4 * tilt)
            return np.asarray(np.exp(pair.log_moment(law, dim, v2, tilt=2 * tilt) + row))

        return Moments(np.exp(log_power(1)), np.exp(log_power(2)), cross)

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        return exponential_products(q + k, self._row_log(q, k), np.full(k.shape[1], self._tilt))

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        return squared_skewness_of_logs(self._log_powers(x, y))

    @final
    def _row_log(self, x: Float64, y: Float64) -> Float64:
        """Return the logarithm of the factors of the rows."""
        log: Float64 = (self.kernel.row_exponent - 1) * np.sum(x**2 + y**2, axis=-1)
        return log

    @final
    def _log_powers(self, x: Float64, y: Float64) -> Callable[[int], Float64]:
        """Return log E t^k of a term t as a function of k."""
        law, dim, d = self.projection.law(), self.projection.sphere(*self.omega.shape), x.shape[-1]
        tilt = self._tilt
        v2 = (1 - 4 * tilt) * np.sum((x + y) ** 2, axis=-1)
        row = self._row_log(x, y) + d / 2 * np.log1p(-4 * tilt)

        def log_power(k: int) -> Float64:
            if 4 * k * tilt >= 1 and law == NORM_LAWS["chi"]:
                return np.full(v2.shape, np.inf)
            if tilt and dim != d:  # constant norms, of which an unknown share is left
                return np.asarray(cut_log_moment(dim, d, k**2 * v2, 2 * k * tilt) + k * row)
            return np.asarray(law.log_moment(dim, k**2 * v2, tilt=2 * k * tilt) + k * row)

        return log_power


@final
@dataclass(frozen=True, eq=False, repr=False)
class Positive(Exponential):
    r"""Positive features of FAVOR+: :math:`\phi(x) = m^{-1/2} \exp(\Omega x - (1 - c)|x|^2)`.

    Choromanski et al. (2021); c is 1/2 for softmax and 0 for the Gaussian kernel. One term is
    :math:`e^{-n/2} e^{\omega^T(x + y)}` for softmax, :math:`n = |x|^2 + |y|^2`. With ``norms="sqrt_d"`` this is SMREG,
    which estimates another kernel: `mean` says which.
    """

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec("exp", omega=self._fold_scale(), **self._row_logs(), amplitude=len(self.omega) ** -0.5)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Hyperbolic(Exponential):
    r"""Positive features in pairs: :math:`\phi(x) = (2D)^{-1/2} \exp([\Omega x, -\Omega x] - (1 - c)|x|^2)`.

    Choromanski et al. (2021). One term is :math:`\cosh \omega^T(x + y)` times the row factors.
    """

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec(
            "exp_pair", omega=self._fold_scale(), **self._row_logs(), amplitude=(2 * len(self.omega)) ** -0.5
        )

    def _moments(self, x: Float64, y: Float64) -> Moments:
        mean, second, cross = super()._moments(x, y)
        second = (np.exp(2 * self._row_log(x, y)) + second) / 2
        return Moments(mean, second, lambda pair: of_even_terms(cross, pair))

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        return cosine_products(q + k, self._row_log(q, k), 1)

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        r"""Return the squared skewness of a term, from :math:`h_k = E \cosh k u`.

        :math:`E \cosh^2 u = (1 + h_2) / 2` and :math:`E \cosh^3 u = (h_3 + 3 h_1) / 4`.
        """
        size = np.linalg.norm(x + y, axis=-1)
        law, dim = self.projection.law(), self.projection.sphere(*self.omega.shape)
        one, two, three = (law.moment(dim, (k * np.maximum(size, LEAST_SUM)) ** 2) for k in (1, 2, 3))
        variance = (1 / one + two / one) / one / 2 - 1
        third = (three / one + 3) / one / one / 4 - 3 * variance - 1
        return np.where(size > 0, squared_skewness(variance, third), 0.0)


@final
@dataclass(frozen=True, eq=False, repr=False)
class OptimalPositive(Exponential):
    r"""Optimal positive features: :math:`\phi(x) = m^{-1/2} B^{d/2} \exp(A|\omega|^2 + B \Omega x - (1 - c)|x|^2)`.

    FAVOR++, Likhosherstov et al. (2022); :math:`B = \sqrt{1 - 4A}`. The variance is least at
    :math:`p = E|x + y|^2 / d` with the tilt :math:`A = (1 - 2p - \sqrt{(2p + 1)^2 + 8p}) / 16`, which
    `kernattn.random_features` takes.
    """

    tilt: float

    def __post_init__(self) -> None:
        """Check the tilt: from 1/8 on, the variance is infinite."""
        super().__post_init__()
        if not -HUGE <= finite_number("tilt", self.tilt) < 1 / 8:
            raise ParameterError(f"tilt must be below 1/8, and its size up to {HUGE:g}; got {shown(self.tilt)}")

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        stretch, dim = np.sqrt(1 - 4 * self.tilt), self.omega.shape[1]
        squares = self.omega.square_norms if isinstance(self.omega, Chains) else np.sum(self.omega**2, axis=-1)
        offset = self.tilt * squares + dim / 2 * np.log(stretch)
        amplitude = len(self.omega) ** -0.5
        return MapSpec("exp", omega=self._fold_scale(stretch), **self._row_logs(), offset=offset, amplitude=amplitude)

    @property
    def _tilt(self) -> float:
        return self.tilt
