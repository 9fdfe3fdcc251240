"""The Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._arrays.namespaces import Array
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary
from kernattn.ops.pairwise.forms import EXPONENTIAL, SQUARED, Form


@final
@dataclass(frozen=True)
class Gaussian(Stationary):
    r"""Gaussian kernel, :math:`k(x, y) = \exp(-\frac{1}{2} \sum_i (x_i - y_i)^2 / \ell_i^2)`.

    Rasmussen and Williams (2006), equation 4.9, and equation 5.1 for one lengthscale an axis (automatic relevance
    determination). Where no compiled loop takes the arrays, the distances of a matrix are
    :math:`|x'|^2 + |y'|^2 - 2 x'^T y'` around medians of y, clamped at 0.

    Parameters
    ----------
    lengthscale : float or (d,) array_like
        The lengthscale :math:`\ell`, positive: one number, or one for each axis. It is kept as a float or a tuple of
        floats.

    Raises
    ------
    ParameterError
        If the lengthscale is not a positive finite number or a vector of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Gaussian(lengthscale=[1.0, 2.0])
    >>> x = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> kernel(x).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    >>> kernel.pairs(x, x[::-1]).round(4)
    array([0.3679, 0.3679])
    """

    lengthscale: Lengthscale = 1.0
    _in_one_pass = True

    def _evaluate(self, rows: Rows) -> Array:
        return rows.of(Form(SQUARED, EXPONENTIAL, -0.5))

    def _logs(self, rows: Rows) -> Array:
        return -0.5 * self._place(rows).evaluate(self.input_scale(rows.dim), Rows.squared_distance)
