r"""Norms of frequencies whose law is a scale mixture of Gaussians: those of Matern and rational quadratic kernels.

A norm is :math:`R = s \chi_d` with a random scale s for each row. One row's moment is the kernel itself. For more rows,
with :math:`b = d/2` and the Laplace transform :math:`L(p) = E\,e^{-p R^2} = E (1 + 2 s^2 p)^{-b}`, Hankel's integral of
0F1 gives

.. math:: E\,{}_0F_1(; b; -y \rho^2 / 4) = \frac{\Gamma(b)}{2 \pi i} \int e^u u^{-b} L(y / 4u)^{rows}\, du .

On the contour of steepest descent, :math:`u = \sigma \theta (\cot\theta + i)`, the trapezoidal rule converges
geometrically; so it does for L, in the logarithm of the Gamma variable that s is a function of. Many values of y are
interpolated in log y, where the integral is analytic in a wide strip. The tests hold absolute errors to 1e-8 or less,
of one row for shapes from 0.05 to 1e4 and d up to 512.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_number
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.kernels._matern import matern
from kernattn.projections._norm_law import NormLaw

Complex = NDArray[np.complex128]

LOG_EPS = -34.0
SIGMA = 10.0  # the least: closer to the cut of u^-b more nodes would be needed
CHUNK = 2**18  # complex numbers at a time


class ScaleMixture(NormLaw):
    r"""The law of :math:`R = s \chi_d`, with :math:`s^2` a function of a Gamma variable G of rate 1."""

    @property
    @abstractmethod
    def shape(self) -> float:
        """The shape of G."""

    @abstractmethod
    def _squared_scale(self, g: Float64) -> Float64:
        """Return s^2 where G = g."""

    @abstractmethod
    def _one_row(self, y: Float64) -> Float64:
        """Return E cos(w.x) for |x|^2 = y: the kernel."""

    @abstractmethod
    def _factor(self, b: float, p: Complex, g: Float64) -> tuple[Complex, Complex]:
        """Return f = (1 + 2 s^2 p)^-b where G = g, and f less its derivative in g, both (..., g)."""

    @final
    def sample(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        chi2 = generator.chisquare(d, m)
        return np.asarray(np.sqrt(chi2 * self._squared_scale(generator.standard_gamma(self.shape, m))))

    @final
    def of_chi(self, norms: Float64, d: int, u: Float64) -> Float64:
        """Return the norms times scales, which are quantiles at u."""
        return np.asarray(norms * np.sqrt(self._squared_scale(special.gammaincinv(self.shape, u))))

    @final
    def sines(self, d: int) -> tuple[Float64, Float64]:
        raise NoClosedForm(
            f"no closed form is known for two frequencies at another than a right angle with norms of {self!r}"
        )

    @final
    def _log_moment(self, d: int, t2: Float64, tilt: float, rows: int) -> Float64:
        self._check_tilt(tilt)
        if np.any(t2 > 0.0):
            raise ParameterError(f"t2 must not be positive with {self!r}, whose tails are heavy; got {np.max(t2)}")
        return np.zeros_like(t2)

    @final
    def _moment_of_minus(self, d: int, y: Float64, tilt: float, rows: int) -> Float64:
        self._check_tilt(tilt)
        if rows == 1 or y.size == 0:
            return self._one_row(y)
        log = np.log(y)
        low, high = np.min(log) - 1.0, np.max(log) + 1.0
        degree = 24 + int(9 * (high - low))
        if y.size <= degree:
            return self._integral(d / 2.0, y, rows)
        series = Chebyshev.interpolate(lambda t: self._integral(d / 2.0, np.exp(t), rows), degree, [low, high])
        return np.asarray(series(log))

    def _integral(self, b: float, y: Float64, rows: int) -> Float64:
        u, du = _contour(b)
        size = max(1, CHUNK // (len(u) * len(_gamma(self.shape)[0])))
        parts = [y[i : i + size] for i in range(0, len(y), size)]
        return np.concatenate([np.imag(self._laplace(b, part[:, None] / (4 * u)) ** rows @ du) for part in parts])

    def _check_tilt(self, tilt: float) -> None:
        if tilt != 0.0:
            raise ParameterError(f"tilt must be 0 with {self!r}, whose tails are heavy; got {tilt}")

    def _laplace(self, b: float, p: Complex) -> Complex:
        """Return E exp(-p R^2) for p off the negative axis."""
        # below 1 the shape is raised by E_a f(G) = E_(a+1) [f(G) - f'(G)]
        g, weights = _gamma(self.shape)
        f, raised = self._factor(b, p[..., None], g)
        return np.asarray((raised if self.shape < 1 else f) @ weights)


@final
@dataclass(frozen=True)
class MaternNorms(ScaleMixture):
    r"""Norms of the multivariate t law of :math:`2\nu` degrees of freedom: :math:`s^2 = \nu / G`, shape :math:`\nu`.

    Rasmussen and Williams (2006), section 4.2.1: the spectral measure of the Matern kernel.
    """

    nu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", positive_number("nu", self.nu))

    @property
    def shape(self) -> float:
        return self.nu

    def _squared_scale(self, g: Float64) -> Float64:
        return self.nu / g

    def _one_row(self, y: Float64) -> Float64:
        return matern(self.nu, np.sqrt(2 * self.nu * y))

    def _factor(self, b: float, p: Complex, g: Float64) -> tuple[Complex, Complex]:
        c = 2 * self.nu * p
        f = (g / (g + c)) ** b
        return f, f * (1 - b * c / (g * (g + c)))


@final
@dataclass(frozen=True)
class RationalQuadraticNorms(ScaleMixture):
    r"""Norms of Gaussians of Gamma variance: :math:`s^2 = G / \alpha`, G of shape :math:`\alpha`.

    Rasmussen and Williams (2006), section 4.2.1: the spectral measure of the rational quadratic kernel.
    """

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive_number("alpha", self.alpha))

    @property
    def shape(self) -> float:
        return self.alpha

    def _squared_scale(self, g: Float64) -> Float64:
        return g / self.alpha

    def _one_row(self, y: Float64) -> Float64:
        return np.asarray(np.exp(-self.alpha * np.log1p(y / (2 * self.alpha))))

    def _factor(self, b: float, p: Complex, g: Float64) -> tuple[Complex, Complex]:
        base = 1 + 2 * p / self.alpha * g
        f = base**-b
        return f, f * (1 + 2 * b * p / self.alpha / base)


def _contour(b: float) -> tuple[Complex, Complex]:
    """Return nodes u above the real axis and weights: Im sum f(u) weight = Gamma(b) / (2 pi i) int e^u u^-b f(u) du."""
    sigma = max(b, SIGMA)
    step = min(0.12, 0.6 / np.sqrt(sigma))
    theta = (np.arange(int(np.pi / step)) + 0.5) * step
    log_size = sigma * theta / np.tan(theta) - b * np.log(sigma * theta / np.sin(theta)) + special.gammaln(b)
    theta, log_size = theta[log_size > LOG_EPS], log_size[log_size > LOG_EPS]
    u = sigma * theta * (1 / np.tan(theta) + 1j)
    slope = sigma * (1 / np.tan(theta) - theta / np.sin(theta) ** 2 + 1j)
    return u, np.exp(log_size + 1j * (sigma - b) * theta) * slope * step / np.pi


def _gamma(shape: float) -> tuple[Float64, Float64]:
    """Return nodes g and weights of the Gamma law of that shape, one more where it is below 1; trapezoids in log g."""
    shape = shape + 1 if shape < 1 else shape
    step = min(0.15, 0.7 / np.sqrt(shape))
    low, high = np.log(special.gammaincinv(shape, 1e-20)), np.log(special.gammainccinv(shape, 1e-20))
    w = np.arange(low, high + step, step)
    return np.exp(w), np.exp(shape * w - np.exp(w) - special.gammaln(shape)) * step
