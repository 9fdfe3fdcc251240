"""The additive and the skewed chi-squared kernel, for histograms; and the kernel of the latter's logarithms."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import final

from kernattn._arrays.namespaces import Array, anywhere
from kernattn._runtime.checks import moderate_number
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows, check_rows
from kernattn.kernels._stationary import Lengthscale, Stationary


@final
@dataclass(frozen=True)
class AdditiveChi2(Kernel):
    r"""Additive chi-squared kernel, :math:`k(x, y) = \sum_i 2 x_i y_i / (x_i + y_i)`, for :math:`x, y \ge 0`.

    Vedaldi and Zisserman (2012), table 1; an axis where both are 0 gives 0. scikit-learn's `additive_chi2_kernel` is
    :math:`2k - |x|_1 - |y|_1`.

    Raises
    ------
    ParameterError
        When it is evaluated, if a value is negative (of arrays whose values are known: traced ones cannot be looked
        at).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.AdditiveChi2()(np.array([[0.5, 0.5], [0.0, 1.0]])).round(4)
    array([[1.    , 0.6667],
           [0.6667, 1.    ]])
    """

    def check_domain(self, name: str, x: Array) -> None:
        """Raise where a value of x is negative; see `Kernel.check_domain`."""
        if anywhere(x < 0):
            raise ParameterError(f"{name} must not be negative: AdditiveChi2 compares histograms")

    def _evaluate(self, rows: Rows) -> Array:
        part = 0.25 if rows.far else 1.0  # an even share of both, where their sum would overflow

        def term(x: Array, y: Array) -> Array:
            total = part * x + part * y
            share = part * rows.xp.maximum(x, y) / rows.xp.where(total == 0, 1.0, total)
            return rows.xp.minimum(x, y) * share

        return 2 * rows.sum(term)


@final
@dataclass(frozen=True)
class SkewedChi2(Kernel):
    r"""Skewed chi-squared kernel, :math:`k(x, y) = \prod_i 2 \sqrt{x_i + c} \sqrt{y_i + c} / (x_i + y_i + 2c)`.

    Li, Ionescu and Sminchisescu (2010), equation 5, for :math:`x, y > -c`. It is
    :math:`\prod_i \mathrm{sech}(\delta_i / 2)` with :math:`\delta_i = \log(x_i + c) - \log(y_i + c)`.

    Parameters
    ----------
    skewedness : float
        The number c, positive.

    Raises
    ------
    ParameterError
        If the skewedness is no positive finite number; when it is evaluated, if a value is not above -c (of arrays
        whose values are known: traced ones cannot be looked at).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.SkewedChi2(skewedness=1.0)(np.array([[0.0, 0.0], [0.0, 3.0]]))
    array([[1. , 0.8],
           [0.8, 1. ]])
    """

    skewedness: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "skewedness", moderate_number("skewedness", self.skewedness))

    def check_domain(self, name: str, x: Array) -> None:
        """Raise where a value of x is not above -skewedness; see `Kernel.check_domain`."""
        wide = check_rows(x, x, cross=False).x  # -c may be no number of 16 bits
        if anywhere(wide <= -self.skewedness):
            raise ParameterError(f"{name} must be above -skewedness = {-self.skewedness}; it holds a smaller value")

    def _evaluate(self, rows: Rows) -> Array:
        sqrt, c = rows.xp.sqrt, self.skewedness
        part = 0.25 if rows.far else 1.0  # of both, where their sum would overflow

        def term(x: Array, y: Array) -> Array:
            x, y = part * x + part * c, part * y + part * c
            return 2 * sqrt(x) * sqrt(y) / (x + y)

        return rows.prod(term)

    def _logs(self, rows: Rows) -> Array:
        log, c = rows.xp.log, self.skewedness

        def of_near(rows: Rows) -> Array:
            part = 0.25 if rows.far else 1.0

            def term(x: Array, y: Array) -> Array:
                x, y = part * x + part * c, part * y + part * c
                return log(x) / 2 + log(y) / 2 - log(x / 2 + y / 2)

            return rows.sum(term)

        return rows.evaluate(self.input_scale(rows.dim), of_near)


@final
@dataclass(frozen=True)
class Sech(Stationary):
    r"""Hyperbolic secant kernel, :math:`k(x, y) = \prod_i \mathrm{sech}((x_i - y_i) / 2\ell_i)`.

    The skewed chi-squared kernel of :math:`e^x - c` and :math:`e^y - c` (Li, Ionescu and Sminchisescu 2010); its
    frequencies have the density :math:`\mathrm{sech}(\pi\omega)`, an axis each.

    Parameters and errors are those of :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Sech()(np.log(np.array([[1.0], [4.0]]))).round(4)
    array([[1. , 0.8],
           [0.8, 1. ]])
    """

    lengthscale: Lengthscale = 1.0

    def _evaluate(self, rows: Rows) -> Array:
        def term(z: Array) -> Array:
            small = rows.xp.exp(-rows.xp.abs(z) / 2)
            return 2 * small / (1 + small * small)

        return rows.prod_apart(term)

    def _logs(self, rows: Rows) -> Array:
        xp = rows.xp

        def term(z: Array) -> Array:
            size = xp.abs(z)
            return log(2) - size / 2 - xp.log1p(xp.exp(-size))

        return rows.evaluate(self.input_scale(rows.dim), lambda rows: rows.sum_apart(term))
