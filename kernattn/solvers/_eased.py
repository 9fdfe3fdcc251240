"""A kernel in units of its values, whose squares may be beyond float64."""

from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.units import unit_of
from kernattn.kernels import Kernel


class Eased(NamedTuple):
    """A kernel over a unit, a power of four: neither the unit nor its root rounds."""

    kernel: Kernel
    unit: float

    def __call__(self, x: Float64, y: Float64 | None = None) -> Float64:
        """Return k(x, y) / unit."""
        values: Float64 = self.kernel(x, y)
        return values if self.unit == 1 else values / self.unit

    def matmul(self, x: Float64, y: Float64 | None, v: Float64) -> Float64:
        """Return k(x, y) v / unit."""
        if self.unit == 1:
            return self.kernel.matmul(x, y, v)  # type: ignore[no-any-return]
        root = self.unit**0.5  # on both sides, so that neither is beyond float64
        products: Float64 = self.kernel.matmul(x, y, v / root) / root
        return products


def ease(kernel: Kernel, rows: Any) -> Eased:
    """Return the kernel in units of its largest value on rows; they are 1 where its squares are moderate."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return Eased(kernel, unit_of(kernel.diag(rows)))
