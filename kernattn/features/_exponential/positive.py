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
from kernattn.features._moments.moments import Moments, of_even_terms
from kernattn.features._moments.sums import cosine_products, exponential_products
from kernattn.features._moments.tails import squared_skewness, squared_skewness_of_logs
from kernattn.features._spectral.map import RandomFeatureMap, check_exponential
from kernattn.projections import NORM_LAWS, Pair
from kernattn.projections._cut import cut_log_moment

LEAST_SUM = 0.03  # |x + y| below which cosh u is 1 + u^2 / 2 up to rounding, whose skewness no size changes


@final
@dataclass(frozen=True, eq=False, repr=False)
class Positive(RandomFeatureMap):
    r"""Positive features of FAVOR+: :math:`\phi(x) = m^{-1/2} \exp(\Omega x - (1 - c)|x|^2)`.

    Choromanski et al. (2021); c is 1/2 for softmax and 0 for the Gaussian kernel. One term is
    :math:`e^{-n/2} e^{\omega^T(x + y)}` for softmax, :math:`n = |x|^2 + |y|^2`. With ``norms="sqrt_d"`` this is SMREG,
    which estimates another kernel: `mean` says which.
    """

    def __post_init__(self) -> None:
        """Check the kernel."""
        super().__post_init__()
        check_exponential(self.kernel)

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec("exp", omega=self._folded(), **self._row_logs(), amplitude=len(self.omega) ** -0.5)

    def _moments(self, x: Float64, y: Float64) -> Moments:
        """Return the moments of one frequency's term for scaled rows x, y (..., d)."""
        return _exponential_moments(self, x, y, tilt=0.0)

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        """Return E t(q, k_j) t(q, k_l), (l, l), and the third central moment of sum_j t(q, k_j), of scaled rows."""
        return exponential_products(q + k, _row_log(self, q, k), np.zeros(k.shape[1]))

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        """Return that of one frequency's term for scaled rows x, y (..., d)."""
        return squared_skewness_of_logs(_log_powers(self, x, y, tilt=0.0))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Hyperbolic(RandomFeatureMap):
    r"""Positive features in pairs: :math:`\phi(x) = (2D)^{-1/2} \exp([\Omega x, -\Omega x] - (1 - c)|x|^2)`.

    Choromanski et al. (2021). One term is :math:`\cosh \omega^T(x + y)` times the row factors.
    """

    def __post_init__(self) -> None:
        """Check the kernel."""
        super().__post_init__()
        check_exponential(self.kernel)

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec("exp_pair", omega=self._folded(), **self._row_logs(), amplitude=(2 * len(self.omega)) ** -0.5)

    def _moments(self, x: Float64, y: Float64) -> Moments:
        """Return the moments of one frequency's term for scaled rows x, y (..., d)."""
        mean, second, cross = _exponential_moments(self, x, y, tilt=0.0)
        second = (np.exp(2 * _row_log(self, x, y)) + second) / 2
        return Moments(mean, second, lambda pair: of_even_terms(cross, pair))

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        """Return E t(q, k_j) t(q, k_l), (l, l), and the third central moment of sum_j t(q, k_j), of scaled rows."""
        return cosine_products(q + k, _row_log(self, q, k), 1)

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        r"""Return that of one frequency's term for scaled rows x, y (..., d).

        With :math:`h_k = E \cosh k u`: :math:`E \cosh^2 u = (1 + h_2) / 2`, :math:`E \cosh^3 u = (h_3 + 3 h_1) / 4`.
        """
        size = np.linalg.norm(x + y, axis=-1)
        law, dim = self.projection.law(), self.projection.sphere(*self.omega.shape)
        one, two, three = (law.moment(dim, (k * np.maximum(size, LEAST_SUM)) ** 2) for k in (1, 2, 3))
        variance = (1 / one + two / one) / one / 2 - 1
        third = (three / one + 3) / one / one / 4 - 3 * variance - 1
        return np.where(size > 0, squared_skewness(variance, third), 0.0)


@final
@dataclass(frozen=True, eq=False, repr=False)
class OptimalPositive(RandomFeatureMap):
    r"""Optimal positive features: :math:`\phi(x) = m^{-1/2} B^{d/2} \exp(A|\omega|^2 + B \Omega x - (1 - c)|x|^2)`.

    FAVOR++, Likhosherstov et al. (2022); :math:`B = \sqrt{1 - 4A}`. The tilt :math:`A < 1/8` that minimises the
    variance at :math:`p = E|x + y|^2 / d` is :func:`optimal_tilt`.
    """

    tilt: float

    def __post_init__(self) -> None:
        """Check the tilt: from 1/8 on, the variance is infinite."""
        super().__post_init__()
        check_exponential(self.kernel)
        if not -HUGE <= finite_number("tilt", self.tilt) < 1 / 8:
            raise ParameterError(f"tilt must be below 1/8, and its size up to {HUGE:g}; got {shown(self.tilt)}")

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        stretch, dim = np.sqrt(1 - 4 * self.tilt), self.omega.shape[1]
        squares = self.omega.square_norms if isinstance(self.omega, Chains) else np.sum(self.omega**2, axis=-1)
        offset = self.tilt * squares + dim / 2 * np.log(stretch)
        amplitude = len(self.omega) ** -0.5
        return MapSpec("exp", omega=self._folded(stretch), **self._row_logs(), offset=offset, amplitude=amplitude)

    def _moments(self, x: Float64, y: Float64) -> Moments:
        """Return the moments of one frequency's term for scaled rows x, y (..., d)."""
        return _exponential_moments(self, x, y, tilt=self.tilt)

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        """Return E t(q, k_j) t(q, k_l), (l, l), and the third central moment of sum_j t(q, k_j), of scaled rows."""
        return exponential_products(q + k, _row_log(self, q, k), np.full(k.shape[1], self.tilt))

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        """Return that of one frequency's term for scaled rows x, y (..., d)."""
        return squared_skewness_of_logs(_log_powers(self, x, y, tilt=self.tilt))


def optimal_tilt(p: float) -> float:
    r"""Return :math:`A^* = (1 - 2p - \sqrt{(2p + 1)^2 + 8p}) / 16`, the best tilt at :math:`p = E|x + y|^2 / d`.

    Likhosherstov et al. (2022): with it the variance of `OptimalPositive` is least where :math:`|x + y|^2 / d = p`.

    Parameters
    ----------
    p : float
        The mean of :math:`|x + y|^2 / d` over pairs of scaled rows, 0 or more.

    Returns
    -------
    float
        The tilt, 0 or below.

    Raises
    ------
    ParameterError
        If p is no such number.

    Examples
    --------
    >>> import kernattn as ka
    >>> round(ka.features.optimal_tilt(1.0), 4)
    -0.3202
    """
    if not 0 <= (p := finite_number("p", p)) <= HUGE:
        raise ParameterError(f"p must lie from 0 to {HUGE:g}; got {p!r}")
    return float((1 - 2 * p - np.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16)


def _row_log(phi: RandomFeatureMap, x: Float64, y: Float64) -> Float64:
    log: Float64 = (phi.kernel.row_exponent - 1) * np.sum(x**2 + y**2, axis=-1)
    return log


def _log_powers(phi: RandomFeatureMap, x: Float64, y: Float64, tilt: float) -> Callable[[int], Float64]:
    """Return log E t^k as a function of k, of t = B^d exp(2 A |w|^2 + B w.(x + y)) times the row factors."""
    law, dim, d = phi.projection.law(), phi.projection.sphere(*phi.omega.shape), x.shape[-1]
    v2 = (1 - 4 * tilt) * np.sum((x + y) ** 2, axis=-1)
    row = _row_log(phi, x, y) + d / 2 * np.log1p(-4 * tilt)

    def log_power(k: int) -> Float64:
        if 4 * k * tilt >= 1 and law == NORM_LAWS["chi"]:
            return np.full(v2.shape, np.inf)
        if tilt and dim != d:  # constant norms, of which an unknown share is left
            return np.asarray(cut_log_moment(dim, d, k**2 * v2, 2 * k * tilt) + k * row)
        return np.asarray(law.log_moment(dim, k**2 * v2, tilt=2 * k * tilt) + k * row)

    return log_power


def _exponential_moments(phi: RandomFeatureMap, x: Float64, y: Float64, tilt: float) -> Moments:
    """Moments of B^d exp(2 A |w|^2 + B w.(x + y)) times the row factors."""
    law, dim, d = phi.projection.law(), phi.projection.sphere(*phi.omega.shape), x.shape[-1]
    log_power = _log_powers(phi, x, y, tilt)

    def cross(pair: Pair) -> Float64:
        if tilt and dim != d:
            raise NoClosedForm(
                "no closed form is known for the variance of tilted features of constant norms whose padding was "
                "dropped"
            )
        v2 = (1 - 4 * tilt) * np.sum((x + y) ** 2, axis=-1)
        row = 2 * _row_log(phi, x, y) + d * np.log1p(-4 * tilt)
        return np.asarray(np.exp(pair.log_moment(law, dim, v2, tilt=2 * tilt) + row))

    return Moments(np.exp(log_power(1)), np.exp(log_power(2)), cross)
