"""The Cauchy kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._arrays.namespaces import Array
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary


@final
@dataclass(frozen=True)
class Cauchy(Stationary):
    r"""Cauchy kernel, :math:`k(x, y) = \prod_i 1 / (1 + (x_i - y_i)^2 / \ell_i^2)`.

    Rahimi and Recht (2007), figure 1 (there with a factor of 2 for each axis): its frequencies are independent Laplace
    variables, an axis each.

    Parameters and errors are those of :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Cauchy()(np.array([[0.0, 0.0], [1.0, 2.0]]))
    array([[1. , 0.1],
           [0.1, 1. ]])
    """

    lengthscale: Lengthscale = 1.0

    def _evaluate(self, rows: Rows) -> Array:
        return rows.prod_apart(lambda z: 1 / (1 + z**2))

    def _logs(self, rows: Rows) -> Array:
        xp = rows.xp
        return -self._place(rows).evaluate(
            self.input_scale(rows.dim), lambda rows: rows.sum_apart(lambda z: xp.log1p(z**2))
        )
