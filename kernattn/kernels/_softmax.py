"""The softmax kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import moderate_number, positive_integer
from kernattn._sums.units import LOW
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows
from kernattn.ops.pairwise.forms import DOT, EXPONENTIAL, Form


@final
@dataclass(frozen=True)
class Softmax(Kernel):
    r"""Softmax kernel, :math:`k(x, y) = \exp(s\, x^T y)`, the unnormalised weight of attention.

    Vaswani et al. (2017) for the scale; Choromanski et al. (2021), section 2.2, for the kernel.

    Parameters
    ----------
    scale : float, optional
        The scale s, positive. None is :math:`d^{-1/2}`, for whatever d the inputs have.

    Raises
    ------
    ParameterError
        If the scale is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Softmax()
    >>> x = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    >>> np.log(kernel(x)).round(4)
    array([[2. , 0.5],
           [0.5, 0.5]])
    """

    scale: float | None = None
    row_exponent: ClassVar[float] = 0.5
    attention_weights: ClassVar[bool] = True
    _in_one_pass = True

    def __post_init__(self) -> None:
        if self.scale is not None:
            object.__setattr__(self, "scale", moderate_number("scale", self.scale))

    def input_scale(self, d: int) -> Float64:
        """Return c = s^(1/2), so that k = exp(x'.y') with x' = c x; d^(-1/4) by default."""
        d = positive_integer("d", d)
        return np.full(d, d**-0.25 if self.scale is None else self.scale**0.5)

    def _evaluate(self, rows: Rows) -> Array:
        return rows.of(Form(DOT, EXPONENTIAL, 1.0))

    def _logs(self, rows: Rows) -> Array:
        return rows.evaluate(self.input_scale(rows.dim), Rows.held_dot)

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return weights over their row's largest, where that is far from 1, and its logarithm."""
        xp, scores = rows.xp, rows.evaluate(self.input_scale(rows.dim), Rows.held_dot)
        top = xp.max(scores, axis=-1, keepdims=True)
        unit = xp.where(xp.abs(top) > -LOW, top, xp.zeros_like(top))
        return xp.exp(scores - unit), unit
