"""The rational quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import final

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import moderate_number
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary

GAUSSIAN = 1e22  # from which the kernel is the Gaussian one to rounding
FAR = 50.0  # log(1 + t) = log t to rounding from log t on


@final
@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel, :math:`k(x, y) = (1 + z^2 / 2\alpha)^{-\alpha}`.

    Rasmussen and Williams (2006), equation 4.19, with :math:`z^2 = \sum_i (x_i - y_i)^2 / \ell_i^2`: the Gaussian
    kernel averaged over a Gamma law of the inverse squared lengthscale, and that kernel itself as
    :math:`\alpha \to \infty`.

    Parameters
    ----------
    alpha : float
        The shape :math:`\alpha`, positive; the smaller, the heavier the kernel's tail.
    lengthscale : float or (d,) array_like
        The lengthscale :math:`\ell`, positive: one number, or one for each axis.

    Raises
    ------
    ParameterError
        If alpha is no positive finite number, or the lengthscale not one or a vector of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.RationalQuadratic(alpha=0.5)(np.array([[0.0, 0.0], [0.0, 3.0]])).round(4)
    array([[1.    , 0.3162],
           [0.3162, 1.    ]])
    """

    alpha: float = 1.0
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", moderate_number("alpha", self.alpha))
        super().__post_init__()

    def _evaluate(self, rows: Rows) -> Array:
        return rows.xp.exp(self._log(rows))

    def _logs(self, rows: Rows) -> Array:
        return self._place(rows).evaluate(self.input_scale(rows.dim), self._log)

    def _log(self, rows: Rows) -> Array:
        """Return the logarithm of the kernel of scaled rows."""
        xp, double = rows.xp, 2 * self.alpha
        if rows.far:
            log_part = 2 * rows.log_distance() - log(double)
            log_rise = xp.where(log_part > FAR, log_part, xp.log1p(xp.exp(xp.minimum(log_part, FAR))))
            return -self.alpha * log_rise
        z2 = rows.squared_distance()
        if self.alpha > GAUSSIAN:
            return -0.5 * z2
        log_rise = xp.log1p(z2 / double)
        if double < 1:  # the quotient may be no float
            log_rise = xp.where(xp.isinf(log_rise), xp.log(xp.where(z2 > 0, z2, 1.0)) - log(double), log_rise)
        return -self.alpha * log_rise
