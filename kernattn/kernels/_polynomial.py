"""The polynomial kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import moderate_number, positive_integer
from kernattn._sums.units import scaled_down
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows
from kernattn.ops.pairwise.forms import DOT, POWER, Form


@final
@dataclass(frozen=True)
class Polynomial(Kernel):
    r"""Polynomial kernel, :math:`k(x, y) = (\gamma\, x^T y + c_0)^p`.

    Schoelkopf and Smola (2002), section 2.2. scikit-learn's `polynomial_kernel` has the same parameters and other
    defaults (:math:`\gamma = 1/d`, :math:`c_0 = 1`).

    Parameters
    ----------
    degree : int
        The power p, at least 1.
    gamma : float
        The factor :math:`\gamma`, positive.
    coef0 : float
        The constant :math:`c_0`; 0 is the homogeneous kernel, and a negative one would not be positive definite.

    Raises
    ------
    ParameterError
        If degree is no positive integer, gamma no positive number, or coef0 negative.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Polynomial(degree=3, coef0=1.0)(np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[ 8.,  8.],
           [ 8., 27.]])
    """

    degree: int = 2
    gamma: float = 1.0
    coef0: float = 0.0
    _in_one_pass = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", positive_integer("degree", self.degree))
        object.__setattr__(self, "gamma", moderate_number("gamma", self.gamma))
        object.__setattr__(self, "coef0", moderate_number("coef0", self.coef0, zero=True))

    def input_scale(self, d: int) -> Float64:
        """Return c = gamma^(1/2), so that k = (x'.y' + coef0)^degree with x' = c x."""
        return np.full(positive_integer("d", d), self.gamma**0.5)

    def _evaluate(self, rows: Rows) -> Array:
        return rows.of(Form(DOT, POWER, self.coef0, self.degree))

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the degree is odd."""
        return self.degree % 2 == 1

    def _logs(self, rows: Rows) -> Array:
        """Return the logarithms, of products over the power of two of a row of x."""
        xp, (x, octaves) = rows.xp, scaled_down(rows.xp, rows.x, tiny=True)
        products = replace(rows, x=x).evaluate(self.input_scale(rows.dim), Rows.held_dot)
        size = xp.abs(products + self.coef0 * 2.0**-octaves)
        logs = xp.log(xp.where(size > 0, size, xp.ones_like(size)))
        return xp.where(size > 0, self.degree * (logs + log(2) * octaves), -xp.inf)

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return the kernel over powers of two: of the size of a row of x far from 1, then of that of its products.

        Beside a constant only huge ones are far.
        """
        xp, p, homogeneous = rows.xp, self.degree, self.coef0 == 0
        x, octaves = scaled_down(xp, rows.x, tiny=homogeneous)
        products = replace(rows, x=x).evaluate(self.input_scale(rows.dim), Rows.held_dot) + self.coef0 * 2.0**-octaves
        products, more = scaled_down(xp, products, p, tiny=homogeneous)
        return products**p, p * log(2) * (octaves + more)
