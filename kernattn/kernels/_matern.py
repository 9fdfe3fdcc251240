"""The Matern kernels."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from types import ModuleType
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, check_computed, constant, records_gradient, to_numpy64
from kernattn._runtime.checks import moderate_number
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary
from kernattn.ops.pairwise.forms import LINEAR, MATERN, QUADRATIC, SQUARED, Form
from kernattn.ops.pairwise.reference import decay

TINY = 1e-300  # below it SciPy knows no K_nu
HUGE = 1e15  # from here on log p(s) is nothing beside s
LARGE = 100.0  # orders from which Debye's expansion is right to rounding


@final
@dataclass(frozen=True)
class Matern(Stationary):
    r"""Matern kernel, :math:`k(x, y) = \frac{2^{1-\nu}}{\Gamma(\nu)} s^\nu K_\nu(s)`.

    Rasmussen and Williams (2006), equations 4.14 to 4.17, with :math:`s^2 = 2\nu \sum_i (x_i - y_i)^2 / \ell_i^2`:
    :math:`e^{-s}` for :math:`\nu = 1/2`, :math:`(1 + s) e^{-s}` for 3/2, :math:`(1 + s + s^2/3) e^{-s}` for 5/2, the
    Gaussian kernel as :math:`\nu \to \infty`. For these three it is evaluated where the arrays are; for other
    :math:`\nu` the Bessel function is SciPy's, in float64 on the host: arrays that are traced, or whose gradient
    PyTorch records, raise `ParameterError`.

    Parameters
    ----------
    nu : float
        The smoothness :math:`\nu`, positive.
    lengthscale : float or (d,) array_like
        The lengthscale :math:`\ell`, positive: one number, or one for each axis.

    Raises
    ------
    ParameterError
        If nu is no positive finite number, or the lengthscale not one or a vector of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0]])
    >>> [ka.kernels.Matern(nu)(x).round(4).tolist()[0] for nu in (0.5, 1.0, 1.5)]
    [[1.0, 0.3679], [1.0, 0.4443], [1.0, 0.4834]]
    """

    nu: float = 1.5
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", moderate_number("nu", self.nu))
        super().__post_init__()

    @property
    def _in_one_pass(self) -> bool:
        """Whether the order has a closed form."""
        return self.nu in (0.5, 1.5, 2.5)

    def _evaluate(self, rows: Rows) -> Array:
        of_squares = rows.has_loop or not rows.cross  # are squared distances sums of squares?
        if self._in_one_pass and not rows.far and (self.nu > 1 or of_squares):
            return rows.of(Form(SQUARED, MATERN, 2 * self.nu, int(self.nu)))
        # below 1 the kernel is too steep at 0 for distances that come out of a cancellation, or whose squares vanish
        z = rows.distance() if self.nu < 1 or rows.far else rows.xp.sqrt(rows.squared_distance())
        if not self._in_one_pass:
            wide = self._on_host(z)
            z = rows.xp.asarray(z)
            s = np.maximum(sqrt(2 * self.nu) * wide, np.where(wide > 0, TINY, 0.0))
            return constant(rows.xp, matern(self.nu, s), z.dtype, z)
        s = sqrt(2 * self.nu) * (rows.xp.minimum(z, rows.reach) if rows.far else z)  # beyond it the kernel is 0
        return decay(rows.xp, s, int(self.nu))

    def _on_host(self, z: Array) -> Float64:
        """Return distances for the Bessel function of SciPy; a gradient would be lost there."""
        if not records_gradient(z):
            check_computed("x", z)
            with suppress(ParameterError):  # of what is traced
                return to_numpy64(z)
        raise ParameterError(f"nu must be 0.5, 1.5 or 2.5 where arrays are traced or differentiated; got {self.nu}")

    def _logs(self, rows: Rows) -> Array:
        """Return the logarithms; where the order has no closed form, those of the kernel itself."""
        if not self._in_one_pass:
            return super()._logs(rows)

        def of_near(rows: Rows) -> Array:
            return _log_decay(rows.xp, sqrt(2 * self.nu) * rows.distance(), int(self.nu))

        return self._place(rows).evaluate(self.input_scale(rows.dim), of_near)


def _log_decay(xp: ModuleType, s: Array, degree: int) -> Array:
    """Return log p(s) - s of a Matern kernel."""
    low = xp.minimum(s, HUGE)
    return xp.log1p(low * (LINEAR[degree] + low * QUADRATIC[degree])) - s if degree else -s


def matern(nu: float, s: Float64) -> Float64:
    """Return 2^(1 - nu) / Gamma(nu) s^nu K_nu(s) for s >= 0."""
    result = _of_large_order(nu, s) if nu > LARGE else _by_bessel(nu, s)
    return np.asarray(np.where(s == 0, 1.0, np.minimum(result, 1.0)))


def _by_bessel(nu: float, s: Float64) -> Float64:
    s = np.clip(s, TINY, 1e5)  # beyond which the kernel is 0
    with np.errstate(over="ignore", under="ignore"):
        log_k = np.log(special.kve(nu, s)) - s
    known = ~np.isposinf(log_k)
    log: Float64 = (1 - nu) * np.log(2.0) - special.gammaln(nu) + nu * np.log(s) + np.where(known, log_k, 0.0)
    # K_nu overflows only where s is tiny, or small beside a large nu: the first terms of the series at 0
    q = s**2 / 4
    near = 1 - q / (nu - 1) + q**2 / (2 * (nu - 1) * (nu - 2)) if nu > 2 else np.ones_like(s)
    return np.where(known, np.exp(np.where(known, log, 0.0)), near)


def _of_large_order(nu: float, s: Float64) -> Float64:
    """Return the kernel by Debye's expansion of K_nu (DLMF 10.41.4) over Stirling's of Gamma: large terms cancel."""
    z2 = np.minimum(s / nu, 1e3) ** 2  # beyond which the kernel is 0
    root = np.sqrt(1 + z2)
    rise = z2 / (1 + root)  # root - 1
    p = 1 / root
    terms = (
        -(3 * p - 5 * p**3) / 24,
        (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152,
        -(30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / 414720,
        (4465125 * p**4 - 94121676 * p**6 + 349922430 * p**8 - 446185740 * p**10 + 185910725 * p**12) / 39813120,
    )
    w = 1 / nu
    series = sum(term * w**k for k, term in enumerate(terms, start=1))
    stirling = w / 12 - w**3 / 360 + w**5 / 1260
    log: Float64 = nu * (np.log1p(rise / 2) - rise) - np.log(root) / 2 - stirling + np.log1p(series)
    return np.exp(log)
