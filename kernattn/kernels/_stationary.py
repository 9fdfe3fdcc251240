"""What kernels of the difference x - y share: lengthscales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn._array import Float64
from kernattn._check import positive_integer
from kernattn.errors import ParameterError, ShapeError
from kernattn.kernels._base import Kernel

__all__ = ["Lengthscale", "Stationary"]

Lengthscale = float | Sequence[float] | Float64


class Stationary(Kernel):
    """A kernel of x' - y' with x' = x / lengthscale: one lengthscale, or one for each axis."""

    lengthscale: Lengthscale

    def __post_init__(self) -> None:
        """Check the lengthscale, and keep it as plain numbers."""
        object.__setattr__(self, "lengthscale", _positive_numbers("lengthscale", self.lengthscale))

    def input_scale(self, d: int) -> Float64:
        """Return c = 1 / lengthscale: the kernel is a fixed function of x' - y' with x' = c x.

        Parameters
        ----------
        d : int
            Input dimension; the length of the lengthscale if that is a vector.

        Returns
        -------
        (d,) numpy.ndarray
            The scale.

        Raises
        ------
        ShapeError
            If there are lengthscales for another number of axes.
        """
        lengthscale = np.asarray(self.lengthscale, dtype=np.float64)
        if lengthscale.shape not in ((), (positive_integer("d", d),)):
            raise ShapeError(
                f"lengthscale has {lengthscale.size} entries, for inputs of d = {lengthscale.size}; got d = {d}"
            )
        return np.broadcast_to(1.0 / lengthscale, (d,)).copy()


def _positive_numbers(name: str, values: Any) -> float | tuple[float, ...]:
    """Return a positive finite number as a float, a vector of them as a tuple."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):
        given = np.empty(0)
    if (
        given.dtype.kind not in "iuf"
        or given.ndim > 1
        or given.size == 0
        or not np.all(np.isfinite(given) & (given > 0))
    ):
        raise ParameterError(f"{name} must be a positive finite number or a vector of them; got {values!r}")
    return float(given) if given.ndim == 0 else tuple(given.astype(np.float64).tolist())
