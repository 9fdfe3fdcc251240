"""A kernel that is a function of two rows, as scikit-learn's Nystroem takes it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, constant, to_numpy64
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.kernels import Kernel, Rows


@final
@dataclass(frozen=True)
class OfPairs(Kernel):
    """The kernel f(x, y) of a function of two rows (d,) of float64, called once for each pair of them."""

    function: Callable[..., Any]
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether it can be negative: nobody knows."""
        return True

    def _evaluate(self, rows: Rows) -> Array:
        x, y = to_numpy64(rows.x), to_numpy64(rows.y)
        if rows.cross:
            x, y = x[..., :, None, :], y[..., None, :, :]
        x, y = np.broadcast_arrays(x, y)  # views, which nobody can write into
        values = np.empty(x.shape[:-1])
        for pair in np.ndindex(values.shape):
            values[pair] = self._of_pair(x[pair], y[pair])
        return constant(rows.xp, values, rows.x.dtype, rows.x)

    def _of_pair(self, x: Float64, y: Float64) -> float:
        value = self.function(x, y, **self.parameters)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ParameterError(
                f"kernel must return a number for two rows, as scikit-learn calls it; got {shown(value)}"
            ) from None
