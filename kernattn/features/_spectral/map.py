"""What the random maps of spectral kernels share: a draw, a scale, and one law for their moments."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np

from kernattn._arrays.namespaces import Float64, without_warnings
from kernattn._maps.chains import Chains
from kernattn._maps.spec import QuadraticForm
from kernattn._runtime.checks import MODERATE, host_array, instance_of, shown
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features._base.spec_map import SpecMap
from kernattn.features._moments.bounds import Terms, of_frequencies
from kernattn.features._moments.moments import Moments
from kernattn.features._moments.pairs import bias_of, bring_together, clean_variance
from kernattn.features._moments.tails import Tails
from kernattn.features._spectral.spectra import Spectrum, has_normal_frequencies, spectrum
from kernattn.kernels import Kernel
from kernattn.projections import NORM_LAWS, Iid, Projection

IMMENSE = 2.0**300  # size of rows whose kernel is 0, 1 or beyond the floats, and whose squares times a tilt are floats


def check_frequencies(projection: Projection, omega: Float64 | Chains) -> None:
    """Raise unless `omega` holds frequencies that the projection could have drawn."""
    instance_of("projection", projection, Projection)
    if not isinstance(omega, Chains):
        host_array("omega", omega, ("m", "d"))
    projection.blocks(*omega.shape)


def check_exponential(kernel: Kernel) -> None:
    """Raise unless the kernel is one that exponential features estimate."""
    if not has_normal_frequencies(kernel):
        raise ParameterError(f"kernel must be Gaussian or Softmax for exponential features; got {shown(kernel)}")


@dataclass(frozen=True, eq=False, repr=False)
class RandomFeatureMap(SpecMap):
    """A map drawn for a kernel that has a spectral measure; see `kernattn.random_features`."""

    _sign: ClassVar[int] = 1  # 1 for terms of x + y, which grow, -1 for cosines of x - y

    kernel: Kernel
    projection: Projection
    omega: Float64 | Chains  # (D, d)

    def __post_init__(self) -> None:
        check_frequencies(self.projection, self.omega)
        instance_of("kernel", self.kernel, Kernel)
        spectrum(self.kernel, self.projection)
        self.kernel.input_scale(self.omega.shape[1])

    @abstractmethod
    def _moments(self, x: Float64, y: Float64) -> Moments:
        """Return the moments of one frequency's term for scaled rows x, y (..., d)."""

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        """Return E t(q, k_j) t(q, k_l), (l, l), and the third central moment of sum_j t(q, k_j), of scaled rows."""
        raise NoClosedForm(f"the covariance of two estimates is not known for {type(self).__name__}")

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        """Return the squared skewness of one frequency's term for scaled rows x, y (..., d)."""
        raise NoClosedForm(f"nothing is known of the tails of {type(self).__name__}")

    def _sizes(self, x: Float64, y: Float64) -> Float64 | None:
        """Return the largest size of one frequency's term for scaled rows x, y (..., d); None where there is none."""
        return None

    @property
    def _input_scale(self) -> Float64:
        """The scale c of the kernel's inputs, (d,): x' = c x."""
        scale: Float64 = self.kernel.input_scale(self.omega.shape[1])
        return scale

    @final
    def _fold_scale(self, stretch: float = 1.0) -> Float64 | Chains:
        """Return the frequencies of unscaled inputs, (D, d): omega times the input scale, times `stretch`."""
        if isinstance(self.omega, Chains):
            return self.omega.scale(self._input_scale, stretch)
        return self.omega * (stretch * self._input_scale)

    @final
    def _row_logs(self) -> dict[str, Any]:
        """Return -(1 - c)|x'|^2 of unscaled inputs for a spec: by weights, or a form where float32 has no weights."""
        scale = self._input_scale
        weights, (low, high) = (self.kernel.row_exponent - 1) * scale**2, MODERATE
        if low <= -np.max(weights) and -np.min(weights) <= high:
            return {"row_weights": weights}
        nothing = np.zeros_like(scale)
        return {"row_form": QuadraticForm(np.diag(np.sqrt(2 - 2 * self.kernel.row_exponent) * scale), nothing, nothing)}

    @property
    def _spectrum(self) -> Spectrum:
        """The law of the frequencies."""
        return spectrum(self.kernel, self.projection)

    @final
    def redraw(self, rng: RNG = None) -> Self:
        frequencies, dim = self.omega.shape
        return replace(self, **self._draws(self._spectrum, frequencies, dim, generator(rng)))

    @final
    @classmethod
    def _sample(
        cls,
        kernel: Kernel,
        frequencies: int,
        dim: int,
        rng: np.random.Generator,
        projection: Projection,
        **parameters: Any,
    ) -> Self:
        """Draw a map."""
        return cls(kernel, projection, **cls._draws(spectrum(kernel, projection), frequencies, dim, rng), **parameters)

    @staticmethod
    def _draws(law: Spectrum, frequencies: int, dim: int, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the random fields of the map."""
        return {"omega": law.draw(frequencies, dim, rng)}

    @final
    def _mean(self, x: Float64, y: Float64) -> Float64:
        return self._moments(*self._scaled_pairs(x, y)).mean

    @final
    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self._mean(x, y), self.kernel.pairs(x, y))

    @final
    def _variance(self, x: Float64, y: Float64) -> Float64:
        self.projection.pairs(*self.omega.shape)  # raises where the variance has no closed form
        return self._variance_of(self._moments(*self._scaled_pairs(x, y)))

    @final
    def _variance_of(self, moments: Moments) -> Float64:
        """Return the variance of the estimate, of the moments of one frequency's term."""
        frequencies, dim = self.omega.shape
        mean, second, cross = moments
        variance = (second - mean**2) / frequencies
        for pair, count in self.projection.pairs(frequencies, dim).items():
            variance = variance + (cross(pair) - mean**2) * count / frequencies**2
        return clean_variance(variance, mean)

    @final
    def _terms(self, x: Float64, y: Float64) -> Terms:
        scaled, features = self._scaled_pairs(x, y), self.num_features_of(self.omega.shape[1]) // len(self.omega)
        moments, size = self._moments(*scaled), self._sizes(*scaled)
        return of_frequencies(self.projection, self.omega.shape, features, moments, self.bias(x, y), size)

    @final
    @without_warnings
    def _tails(self, x: Float64, y: Float64) -> Tails:
        pair = self._scaled_pairs(x, y)
        try:
            squared_skewness = self._squared_skewness(*pair)
        except NoClosedForm:  # directions that are uniform only nearly
            norms = "sqrt_d" if self.projection.law() == NORM_LAWS["sqrt_d"] else "chi"
            squared_skewness = replace(self, projection=Iid(norms))._squared_skewness(*pair)
        return Tails(squared_skewness, len(self.omega))

    def _scaled_pairs(self, x: Float64, y: Float64) -> tuple[Float64, Float64]:
        """Return pairs (..., d) in the kernel's own scale, brought back to a size whose squares are floats."""
        scale = self._input_scale
        x, y = bring_together(x, y, IMMENSE / max(1.0, float(np.max(scale))))
        return x * scale, y * scale
