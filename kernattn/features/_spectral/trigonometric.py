"""Bounded random features: random Fourier features, as cosine and sine pairs or as cosines with a random phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import host_array
from kernattn._runtime.lazy import lazy
from kernattn.features._moments.moments import Moments, cosine_products, of_even_terms, times_exp
from kernattn.features._moments.tails import squared_skewness
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.features._spectral.spectra import Spectrum

ROUNDED = 1e-8  # variance of a cosine below which its third moment may be rounding
LEAST_DIFFERENCE = 0.03


@dataclass(frozen=True, eq=False, repr=False)
class Cosines(RandomFeatureMap):
    r"""Features whose terms are :math:`\cos \omega^T(x - y)`, and noise, times the factors of the rows."""

    _sign = -1
    _noise: ClassVar[float] = 0.0  # variance of cos(w.(x + y) + 2 b), where a term has it
    _largest: ClassVar[float] = 1.0  # size of a term

    @final
    def _arguments(self) -> dict[str, Any]:
        """Return the fields that the specs of these maps share."""
        exponent = self.kernel.row_exponent
        weights = exponent * self._input_scale**2 if exponent else None
        return {"omega": self._fold_scale(), "row_weights": weights}

    @final
    def _row_log(self, x: Float64, y: Float64) -> Float64:
        """Return the logarithm of the factors of the rows."""
        return np.asarray(self.kernel.row_exponent * np.sum(x**2 + y**2, axis=-1))

    @final
    def _moments(self, x: Float64, y: Float64) -> Moments:
        delta, law, m = x - y, self._spectrum, len(self.omega)
        row, log = self._row_log(x, y), law.log_cosine(delta, m)
        second = (1 + law.cosine(2 * delta, m)) / 2 + self._noise
        return Moments(
            times_exp(law.cosine(delta, m), row) if log is None else np.exp(row + log),
            times_exp(second, 2 * row),
            lambda pair: times_exp(of_even_terms(lambda each: law.cosine(delta, m, each), pair), 2 * row),
        )

    @final
    def _sizes(self, x: Float64, y: Float64) -> Float64 | None:
        return np.asarray(self._largest * np.exp(self._row_log(x, y)))

    @final
    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        r"""Return the squared skewness of a term, from :math:`c_k = E \cos k \omega^T(x - y)`.

        The variance is :math:`(1 + c_2) / 2 - c_1^2` and the third central moment
        :math:`(c_3 + 3 c_1) / 4 - 3 c_1 (1 + c_2) / 2 + 2 c_1^3`; the noise is uncorrelated, and symmetric.
        """
        delta = x - y
        size = np.linalg.norm(delta, axis=-1, keepdims=True)

        def central(delta: Float64) -> tuple[Float64, Float64]:
            one, two, three = (self._spectrum.cosine(k * delta, len(self.omega)) for k in (1, 2, 3))
            second = (1 + two) / 2
            return second - one**2 + self._noise, (three + 3 * one) / 4 - 3 * one * second + 2 * one**3

        variance, third = central(delta)
        tiny = variance < ROUNDED
        if np.any(tiny & (size[..., 0] > 0)):  # 1 - u^2 / 2, whose skewness no size changes
            longer = central(delta * np.maximum(1.0, LEAST_DIFFERENCE / np.where(size > 0, size, np.inf)))
            variance, third = (np.where(tiny, *both) for both in zip(longer, (variance, third), strict=True))
        return np.where(size[..., 0] > 0, squared_skewness(variance, third), 0.0)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Trigonometric(Cosines):
    r"""Random Fourier features: :math:`\phi(x) = D^{-1/2} e^{c|x|^2} [\cos \Omega x, \sin \Omega x]`.

    Rahimi and Recht (2007), with both phases of every frequency (Sutherland and Schneider 2015); c is 1/2 for softmax
    and 0 for kernels of x - y. One term is :math:`\cos \omega^T(x - y)`; with iid frequencies the variance
    of the Gaussian kernel's estimate is :math:`(1 - e^{-|x-y|^2})^2 / 2D`.
    """

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec("sincos", **self._arguments(), amplitude=len(self.omega) ** -0.5)

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        return cosine_products(q - k, self._row_log(q, k), -1)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Phase(Cosines):
    r"""Random Fourier features of one cosine each: :math:`\phi(x) = (2/M)^{1/2} e^{c|x|^2} \cos(\Omega x + b)`.

    Rahimi and Recht (2007), b uniform on :math:`[0, 2\pi)`. At equal M and with iid frequencies its
    variance differs from that of :class:`Trigonometric` by :math:`(k(\delta)^2 - k(2\delta) / 2) / M` of a kernel of
    :math:`\delta = x - y`: it is above for the Gaussian kernel, and below where :math:`k(2\delta) > 2 k(\delta)^2`, as
    far out under the Cauchy kernel. With frequencies that depend on each other it can be below too, for it has twice as
    many. It is here for parity with other libraries.
    """

    phase: Float64  # (M,)
    _noise: ClassVar[float] = 0.5
    _largest: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        host_array("phase", self.phase, (len(self.omega),))

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec("cos", **self._arguments(), offset=self.phase, amplitude=(2 / len(self.omega)) ** 0.5)

    @staticmethod
    def _draws(law: Spectrum, frequencies: int, dim: int, rng: np.random.Generator) -> dict[str, Any]:
        omega = law.draw(frequencies, dim, rng)
        return {"omega": omega, "phase": frozen(rng.uniform(0.0, 2 * np.pi, frequencies))}
