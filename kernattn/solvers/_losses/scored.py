"""What fits of scores have in common: weights of the features, an intercept, and the scores of rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64
from kernattn.features import FeatureMap
from kernattn.solvers._spectrum import cast_as, project


class Scored:
    """A fit with scores f(x) = phi(x)^T w + b, one for each of more than two classes, else one."""

    phi: FeatureMap
    classes: NDArray[Any]
    _weights: Float64  # (M, c)
    _intercept: Float64  # (c,)

    @property
    def weights(self) -> Float64:
        """Weights w of the features, (M, k) of more than two classes, else (M,): of two classes those of the second."""
        return self._shape(self._weights)  # type: ignore[no-any-return]

    @property
    def intercept(self) -> Float64:
        """Intercept b, (k,) or (): 0 without one."""
        return self._shape(self._intercept)  # type: ignore[no-any-return]

    @outside_graphs
    def scores(self, x: Array, *, backend: str | None = None) -> Array:
        """Return f(x) = phi(x)^T w + b, (..., n, k) of more than two classes, else (..., n), in the dtype of x."""
        return self._shape(cast_as(project(self.phi, x, self._weights, -self._intercept, backend), x))

    def _shape(self, values: Any) -> Any:
        return values if len(self.classes) > 2 else values[..., 0]
