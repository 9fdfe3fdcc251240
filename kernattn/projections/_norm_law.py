r"""What a law of norms is, and the one radial law behind every mean and variance.

Let :math:`\omega = r u`, u uniform on the unit sphere of :math:`R^d` and r the norm. Then, for every vector s,

.. math:: E_u\, e^{\omega^T s} = {}_0F_1(; d/2; |s|^2 r^2 / 4), \qquad
          E_u \cos \omega^T s = {}_0F_1(; d/2; -|s|^2 r^2 / 4),

and of two orthogonal directions with norms r and r' the same holds for :math:`\omega + \omega'`, with
:math:`\rho^2 = r^2 + r'^2` in place of :math:`r^2`. All that is left is to average over the norms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import finite_number, positive_integer
from kernattn.errors import ParameterError


class NormLaw(ABC):
    """The law of the norm R of one frequency; the norms of different rows are independent."""

    @abstractmethod
    def sample(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        """Draw norms of m frequencies in d dimensions, (m,)."""

    @abstractmethod
    def of_chi(self, norms: Float64, d: int, u: Float64) -> Float64:
        """Return norms of this law, a smooth function of norms of N(0, I_d) and of independent uniform u, (m,) each."""

    @abstractmethod
    def sines(self, d: int) -> tuple[Float64, Float64]:
        r"""Return nodes (k,) and log weights (k,) for :math:`2 R R' / (R^2 + R'^2)` of independent norms.

        Raise NoClosedForm unless that is independent of :math:`R^2 + R'^2`, as it is for constant norms and, of all
        others, for squares of Gamma law alone (Lukacs 1955).
        """

    @final
    def moment(self, d: int, t2: ArrayLike, *, tilt: float = 0.0, rows: int = 1) -> Float64:
        r"""Return :math:`E[e^{a \rho^2}\, {}_0F_1(; d/2; t^2 \rho^2 / 4)]`, where a is the tilt.

        Here :math:`\rho^2 = R_1^2 + \dots + R_{rows}^2` of independent norms. With one row, :math:`t^2 = |s|^2` gives
        :math:`E\,e^{a|\omega|^2} e^{\omega^T s}` and :math:`t^2 = -|s|^2` gives
        :math:`E\,e^{a|\omega|^2} \cos \omega^T s`. With two rows it is the mean of the product of two such factors
        whose frequencies are orthogonal.

        Parameters
        ----------
        d : int
            Dimension of the frequencies.
        t2 : array_like
            Values of :math:`t^2`, of either sign, in any shape.
        tilt : float
            The factor a.
        rows : int
            Number of orthogonal frequencies.

        Returns
        -------
        numpy.ndarray
            The moments, float64, in the shape of t2: infinite beyond the range of float64, NaN where t2 is not finite.
            At :math:`t^2 = 0` without tilt they are exactly 1. Errors for d up to 512 and :math:`|t^2|` up to 1e4,
            as the tests hold them: 1e-14 of the moment at 0 for negative :math:`t^2`, 2e-12 of the moment itself for
            positive.

        Raises
        ------
        ParameterError
            If d or rows is no positive integer, or the tilt makes the expectation infinite.

        Examples
        --------
        >>> from kernattn.projections import NORM_LAWS
        >>> NORM_LAWS["chi"].moment(8, [-1.0, 0.0, 1.0]).round(6)  # exp(t2 / 2)
        array([0.606531, 1.      , 1.648721])
        """
        d, values, tilt, rows = _check_arguments(d, t2, tilt, rows)
        result = np.full(values.shape, np.nan)
        plus, minus = np.isfinite(values) & (values >= 0.0), np.isfinite(values) & (values < 0.0)
        with np.errstate(over="ignore", under="ignore"):
            result[plus] = np.exp(self._log_moment(d, values[plus], tilt, rows))
            result[minus] = self._moment_of_minus(d, -values[minus], tilt, rows)
        return result

    @final
    def log_moment(self, d: int, t2: ArrayLike, *, tilt: float = 0.0, rows: int = 1) -> Float64:
        r"""Return the logarithm of `moment` for :math:`t^2 \ge 0`; it does not overflow.

        Parameters and errors are those of `moment`, of which no t2 may be negative. The logarithms are right to about
        2e-14 of their size, and NaN where t2 is not finite.

        Examples
        --------
        >>> from kernattn.projections import NORM_LAWS
        >>> NORM_LAWS["sqrt_d"].log_moment(8, [0.0, 1e4]).round(3)
        array([  0.   , 266.022])
        """
        d, values, tilt, rows = _check_arguments(d, t2, tilt, rows)
        if np.any(values < 0.0):
            raise ParameterError(f"t2 must not be negative where the logarithm is asked for; got {np.nanmin(values)}")
        result = np.full(values.shape, np.nan)
        finite = np.isfinite(values)
        result[finite] = self._log_moment(d, values[finite], tilt, rows)
        return result

    @abstractmethod
    def _log_moment(self, d: int, t2: Float64, tilt: float, rows: int) -> Float64:
        """Return the logarithm of the moment at finite t2 >= 0, (p,)."""

    @abstractmethod
    def _moment_of_minus(self, d: int, y: Float64, tilt: float, rows: int) -> Float64:
        """Return the moment at t2 = -y, finite y > 0, (p,)."""


def _check_arguments(d: int, t2: ArrayLike, tilt: float, rows: int) -> tuple[int, Float64, float, int]:
    values = np.asarray(t2, dtype=np.float64)
    return positive_integer("d", d), values, finite_number("tilt", tilt), positive_integer("rows", rows)
