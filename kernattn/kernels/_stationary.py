"""What kernels of the difference x - y share: lengthscales."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import MODERATE, array_of, positive_integer, shown
from kernattn.errors import ParameterError, ShapeError
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows

Lengthscale = float | Sequence[float] | Float64


class OfDifferences(Kernel):
    """A kernel of x' - y', x' = c x."""

    def _place(self, rows: Rows) -> Rows:
        return rows.recentre(self.input_scale(rows.dim))

    @abstractmethod
    def of_scaled(self) -> Self:
        """Return the kernel whose inputs are not scaled: of x' and y' it is this one of x and y."""


class Stationary(OfDifferences):
    r"""Base of kernels of :math:`x' - y'`, with :math:`x' = x / \ell`: one lengthscale, or one for each axis.

    A kernel of your own is a frozen dataclass with the field `lengthscale` that defines `_evaluate(rows)`, the formula
    on :class:`Rows` whose x and y are divided already.

    Parameters
    ----------
    lengthscale : float or (d,) array_like
        The lengthscale :math:`\ell`, positive: one number, or one for each axis.

    Raises
    ------
    ParameterError
        If the lengthscale is not a positive finite number or a vector of them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import kernattn as ka
    >>> @dataclass(frozen=True)
    ... class Exponential(ka.kernels.Stationary):
    ...     lengthscale: float = 1.0
    ...
    ...     def _evaluate(self, rows):
    ...         return rows.xp.exp(-(rows.squared_distance() ** 0.5))
    >>> Exponential(lengthscale=2.0)(np.array([[0.0], [2.0]]))
    array([[1.        , 0.36787944],
           [0.36787944, 1.        ]])
    """

    lengthscale: Lengthscale

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengthscale", check_numbers("lengthscale", self.lengthscale))

    def input_scale(self, d: int) -> Float64:
        """Return c = 1 / lengthscale, (d,); raise ShapeError if there are lengthscales for another number of axes."""
        return inverse("lengthscale", self.lengthscale, d)

    def of_scaled(self) -> Self:
        return replace(self, lengthscale=1.0)  # type: ignore[type-var]


def inverse(name: str, numbers: Lengthscale, d: int) -> Float64:
    """Return one over each of d numbers; raise ShapeError if there are numbers for another number of axes."""
    values = np.asarray(numbers, dtype=np.float64)
    if values.shape not in ((), (positive_integer("d", d),)):
        raise ShapeError(f"{name} has {values.size} entries, for inputs of d = {values.size}; got d = {d}")
    return np.broadcast_to(1.0 / values, (d,)).copy()


def check_numbers(name: str, values: Any) -> float | tuple[float, ...]:
    """Return a positive number as a float, a vector of them as a tuple; float32 must hold them, and their inverses."""
    given = array_of(values)
    given = given.astype(np.float64) if given.dtype.kind in "iuf" else given  # the limits are no numbers of 16 bits
    low, high = MODERATE
    if (
        given.dtype.kind not in "iuf"
        or given.ndim > 1
        or given.size == 0
        or not np.all((given >= low) & (given <= high))
    ):
        raise ParameterError(
            f"{name} must be a positive finite number or a vector of them, from {low:g} to {high:g}; "
            f"got {shown(values)}"
        )
    return float(given) if given.ndim == 0 else tuple(given.tolist())
