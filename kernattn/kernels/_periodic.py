"""The periodic kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import moderate_number
from kernattn.kernels._rows import Rows
from kernattn.kernels._stationary import Lengthscale, OfDifferences, check_numbers, inverse


@final
@dataclass(frozen=True)
class Periodic(OfDifferences):
    r"""Periodic kernel, :math:`k(x, y) = \exp(-2 \ell^{-2} \sum_i \sin^2(\pi (x_i - y_i) / p_i))`.

    MacKay (1998), section 5.2, and Rasmussen and Williams (2006), equation 4.31. Its frequencies are whole multiples of
    :math:`2 \pi / p`, an axis each: j times it with the weight :math:`e^{-\kappa} I_j(\kappa)`, where
    :math:`\kappa = \ell^{-2}`. A product with a Gaussian kernel is locally periodic: its period stays, and what is
    repeated changes slowly.

    Parameters
    ----------
    period : float or (d,) array_like
        The period p, positive: one number, or one for each axis.
    lengthscale : float
        The lengthscale :math:`\ell`, positive, in units of the angle :math:`2 \pi x / p`.

    Raises
    ------
    ParameterError
        If the lengthscale is not a positive finite number, or the period not one or a vector of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> day = ka.kernels.Periodic(period=24.0, lengthscale=1.0)
    >>> day(np.array([[3.0], [9.0], [27.0]])).round(4)
    array([[1.    , 0.3679, 1.    ],
           [0.3679, 1.    , 0.3679],
           [1.    , 0.3679, 1.    ]])
    """

    period: Lengthscale = 1.0
    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", check_numbers("period", self.period))
        object.__setattr__(self, "lengthscale", moderate_number("lengthscale", self.lengthscale))

    def input_scale(self, d: int) -> Float64:
        """Return c = 2 pi / p, (d,): x' = c x is an angle."""
        return 2 * pi * inverse("period", self.period, d)

    @property
    def concentration(self) -> float:
        r"""The number :math:`\kappa = \ell^{-2}`."""
        return self.lengthscale**-2

    def of_scaled(self) -> Self:
        return replace(self, period=2 * pi)

    def _evaluate(self, rows: Rows) -> Array:
        return rows.xp.exp(self._exponent(rows))

    def _logs(self, rows: Rows) -> Array:
        return self._place(rows).evaluate(self.input_scale(rows.dim), self._exponent)

    def _exponent(self, rows: Rows) -> Array:
        """Return the logarithm of the kernel of angles."""
        xp = rows.xp
        return -2 * rows.sum_apart(lambda z: (xp.sin(z / 2) / self.lengthscale) ** 2)


def frequencies(kernel: Periodic, rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
    """Return whole numbers j of probability e^-k I_j(k): differences of two counts of mean k / 2."""
    one, other = rng.poisson(kernel.concentration / 2, (2, *shape))
    return np.asarray(one - other, dtype=np.float64)
