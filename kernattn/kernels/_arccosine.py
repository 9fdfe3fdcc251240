"""The arc-cosine kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from numbers import Integral
from types import ModuleType
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Array, anywhere
from kernattn._runtime.checks import shown
from kernattn._sums.units import BAND, in_units, octaves_of, scaled_down, shift_octaves
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows
from kernattn.ops.pairwise.reference import root

SLOPES = {0: 0.0, 1: 1.0, 2: 4.0, 4: 240.0}  # of J_p / pi by the cosine at equal rows, where order 0 has a kink


@final
@dataclass(frozen=True)
class ArcCosine(Kernel):
    r"""Arc-cosine kernel, :math:`k(x, y) = \frac{1}{\pi} |x|^p |y|^p J_p(\theta)`, :math:`\theta` the angle of x and y.

    Cho and Saul (2009): :math:`k(x, y) = 2\, E\, \Theta(u) \Theta(v)\, u^p v^p` for :math:`u = \omega^T x`,
    :math:`v = \omega^T y` and standard normal :math:`\omega`, where :math:`\Theta` is the step function; with
    :math:`J_0 = \pi - \theta`, :math:`J_1 = \sin\theta + (\pi - \theta)\cos\theta` and
    :math:`J_2 = 3 \sin\theta\cos\theta + (\pi - \theta)(1 + 2\cos^2\theta)`. A row of zeros has the kernel 0 with every
    row.

    Parameters
    ----------
    order : {0, 1, 2}
        The order p: steps, rectified linear units, or their squares.

    Raises
    ------
    ParameterError
        If the order is not 0, 1 or 2.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.ArcCosine(order=0)(np.array([[1.0, 0.0], [0.0, 2.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    order: int = 1

    def __post_init__(self) -> None:
        given: object = self.order
        if isinstance(given, bool) or not isinstance(given, Integral) or int(given) not in (0, 1, 2):
            raise ParameterError(f"order must be 0, 1 or 2; got {shown(given)}")
        object.__setattr__(self, "order", int(given))

    def _evaluate(self, rows: Rows) -> Array:
        return arccosine(rows, self.order)

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return the kernel over powers of two of the sizes of a row of x and of all of y, which are its factors."""
        xp = rows.xp
        x, octaves = scaled_down(xp, rows.x, tiny=True)
        common = octaves_of(xp, xp.max(xp.abs(rows.y)))
        rows = replace(rows, x=x, y=rows.y * 2.0**-common)
        return arccosine(rows, self.order), self.order * log(2) * (octaves + common)


def arccosine(rows: Rows, order: int) -> Array:
    """Return the arc-cosine kernel of order 0, 1, 2 or 4; powers of two of the rows' sizes come out as factors."""
    xp, (x, a), (y, b) = rows.xp, in_units(rows.xp, rows.x, BAND), in_units(rows.xp, rows.y, BAND)
    rows, octaves = replace(rows, x=x, y=y), a + xp.matrix_transpose(b) if rows.cross else (a + b)[..., 0]
    left, right = (root(xp, xp.sum(each * each, axis=-1)) for each in (x, y))
    if rows.cross:
        left, right = left[..., :, None], right[..., None, :]
    product = left * right
    angle, short = _angle(rows, left, right)
    result = product**order * (_j(xp, angle, order) / np.pi - SLOPES[order] * short)
    result = xp.where(product == 0, 0.0, result)
    ordinary = anywhere(xp.all(a == 0) & xp.all(b == 0))  # traced arrays cannot tell
    return result if ordinary else shift_octaves(xp, result, order * octaves)


def _angle(rows: Rows, left: Array, right: Array) -> tuple[Array, Array | float]:
    """Return the angle of x and y of norms near 1, or 0; rowwise without the rounding of an arc cosine near 0.

    Beside it is what the cosine lacks of 1 where the angle is 0, which is 0 but for its derivatives, else 0.
    """
    xp = rows.xp
    if rows.cross:
        product = left * right
        safe = xp.where(product == 0, xp.ones_like(product), product)
        quotient = rows.dot() / safe
        cosine = xp.clip(quotient, min=-1.0, max=1.0)
        if isinstance(cosine, np.ndarray):
            return xp.acos(cosine), 0.0
        apart = xp.abs(cosine) < 1  # elsewhere an arc cosine is infinitely steep, and the kernel is not
        ends = xp.where(cosine < 0, xp.full_like(cosine, np.pi), 0 * cosine)
        angle = xp.where(apart, xp.acos(xp.where(apart, cosine, xp.zeros_like(cosine))), ends)
        return angle, xp.where((angle == 0) & (product != 0), 1 - quotient, 0 * cosine)
    x, y = rows.x * right[..., None], rows.y * left[..., None]
    squares = xp.sum((x - y) ** 2, axis=-1)
    angle = 2 * xp.atan2(root(xp, squares), root(xp, xp.sum((x + y) ** 2, axis=-1)))
    if isinstance(angle, np.ndarray):
        return angle, 0.0
    size = (left * right) ** 2
    seen = (angle == 0) & (size != 0)
    return angle, xp.where(seen, squares, 0 * squares) / (2 * xp.where(seen, size, xp.ones_like(size)))


def _j(xp: ModuleType, theta: Array, order: int) -> Array:
    """Return J_p of the angle."""
    sin, cos, rest = xp.sin(theta), xp.cos(theta), np.pi - theta
    if order == 0:
        return rest
    if order == 1:
        return sin + rest * cos
    if order == 2:
        return 3 * sin * cos + rest * (1 + 2 * cos**2)
    return sin * (55 * cos + 50 * cos**3) + rest * (9 + 72 * cos**2 + 24 * cos**4)
