"""Norms of the frequencies: those of normal vectors, and constants."""

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.projections._hypergeometric import hyp0f1_of_minus, hyp1f1_of_minus, log_hyp0f1, log_hyp1f1
from kernattn.projections._norm_law import NormLaw

ANGLES = 40  # nodes of an angle's law
WIDTH = 9.0  # of it, in units of d^(-1/2), its scale


@final
@dataclass(frozen=True)
class Chi(NormLaw):
    r"""Norms of standard normal vectors, :math:`R^2 \sim \chi^2_d`: every row alone is N(0, I).

    With :math:`c = 1 - 2a > 0` and k rows, the moment is :math:`c^{-kd/2}\, {}_1F_1(kd/2; d/2; t^2 / 2c)`; for one row
    that is :math:`c^{-d/2} e^{t^2 / 2c}`.
    """

    def sample(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        return np.sqrt(generator.chisquare(d, m))

    def of_chi(self, norms: Float64, d: int, u: Float64) -> Float64:
        return norms

    def sines(self, d: int) -> tuple[Float64, Float64]:
        r"""Return Gauss nodes for cosines of angles of density :math:`\propto \cos^{d-1}` on the first quadrant."""
        x, weights = np.polynomial.legendre.leggauss(ANGLES)
        cosines = np.cos(min(np.pi / 2, WIDTH / np.sqrt(d)) * (1 + x) / 2)
        log_weights = (d - 1) * np.log(cosines) + np.log(weights)
        return cosines, log_weights - special.logsumexp(log_weights)

    def _log_moment(self, d: int, t2: Float64, tilt: float, rows: int) -> Float64:
        c = _shrink(tilt)
        series = t2 / (2.0 * c) if rows == 1 else log_hyp1f1(rows * d / 2.0, d / 2.0, t2 / (2.0 * c))
        return np.asarray(series - rows * d / 2.0 * np.log(c))

    def _moment_of_minus(self, d: int, y: Float64, tilt: float, rows: int) -> Float64:
        c = _shrink(tilt)
        if rows == 1:
            return np.asarray(np.exp(-y / (2.0 * c) - d / 2.0 * np.log(c)))
        return _times_exp(hyp1f1_of_minus(rows * d / 2.0, d / 2.0, y / (2.0 * c)), -rows * d / 2.0 * np.log(c))


@final
@dataclass(frozen=True)
class SqrtD(NormLaw):
    r"""The constant norm :math:`R = \sqrt{d}`.

    With k rows the moment is :math:`e^{akd}\, {}_0F_1(; d/2; k d t^2 / 4)`. It is what features with these norms
    estimate, exactly: near the Gaussian or softmax kernel in high dimension, but not equal to it.
    """

    def sample(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        return np.full(m, np.sqrt(d))

    def of_chi(self, norms: Float64, d: int, u: Float64) -> Float64:
        return np.full(len(norms), np.sqrt(d))

    def sines(self, d: int) -> tuple[Float64, Float64]:
        """Return the one value 1."""
        return np.ones(1), np.zeros(1)

    def _log_moment(self, d: int, t2: Float64, tilt: float, rows: int) -> Float64:
        return np.asarray(log_hyp0f1(d / 2.0, rows * d * t2 / 4.0) + tilt * rows * d)

    def _moment_of_minus(self, d: int, y: Float64, tilt: float, rows: int) -> Float64:
        return _times_exp(hyp0f1_of_minus(d / 2.0, rows * d * y / 4.0), tilt * rows * d)


NORM_LAWS: dict[str, NormLaw] = {"chi": Chi(), "sqrt_d": SqrtD()}


def _shrink(tilt: float) -> float:
    if tilt >= 0.5:
        raise ParameterError(f"tilt must be below 1/2 with norms 'chi', where the expectation is finite; got {tilt}")
    return 1.0 - 2.0 * tilt


def _times_exp(value: Float64, log: float) -> Float64:
    """Return value * exp(log), which may be finite where exp(log) is not."""
    with np.errstate(divide="ignore"):
        return np.asarray(value if log == 0.0 else np.sign(value) * np.exp(np.log(np.abs(value)) + log))
