"""The Laplacian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._arrays.namespaces import Array
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, Stationary
from kernattn.ops.pairwise.forms import EXPONENTIAL, MANHATTAN, Form


@final
@dataclass(frozen=True)
class Laplacian(Stationary):
    r"""Laplacian kernel, :math:`k(x, y) = \exp(-\sum_i |x_i - y_i| / \ell_i)`.

    Rahimi and Recht (2007), figure 1: its frequencies are independent Cauchy variables, an axis each. scikit-learn's
    `laplacian_kernel` is the one with :math:`\ell = 1 / \gamma`.

    Parameters and errors are those of :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Laplacian()(np.array([[0.0, 0.0], [1.0, -1.0]])).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    """

    lengthscale: Lengthscale = 1.0
    _in_one_pass = True

    def _evaluate(self, rows: Rows) -> Array:
        return rows.of(Form(MANHATTAN, EXPONENTIAL, -1.0))

    def _logs(self, rows: Rows) -> Array:
        return -self._place(rows).evaluate(self.input_scale(rows.dim), lambda rows: rows.of(Form(MANHATTAN)))
