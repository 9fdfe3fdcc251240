"""What estimators that are fitted from moments share: the first rows draw the map, later ones add to the sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.namespaces import Array, Float64
from kernattn.sklearn._drawn import Drawing, drawn
from kernattn.sklearn._inputs import beside
from kernattn.solvers import Moments, moments

LOWEST = 1e-5  # of the features' mean squared norm: where less noise than that is told from none, rounding tells


class OnMoments(Drawing, ABC):
    """An estimator whose fit is a function of moments, which is evaluated when it is first asked for."""

    moments_: Moments

    @abstractmethod
    def _solve(self, m: Moments) -> Any:
        """Return the fit."""

    def _add(self, x: Array, y: Float64 | None, weights: Float64 | None, first: bool) -> None:
        """Add rows to the moments; the first ones draw the map."""
        targets, counts = beside(x, y), beside(x, weights)
        phi = drawn(self, x, counts) if first else self.feature_map_
        found = moments(x, phi, y=targets, weights=counts)
        self.feature_map_, self.moments_ = phi, found if first else self.moments_ + found
        self._solution = None

    @property
    def _begun(self) -> bool:
        return hasattr(self, "moments_")

    @property
    def solution_(self) -> Any:
        """The fit, an object of `kernattn.solvers`."""
        check_is_fitted(self, "moments_")
        if self._solution is None:
            m = self.moments_
            self._solution = self._solve(replace(m, n=max(m.n, round(m.weight))))  # a weight of k stands for k rows
        return self._solution


def lowest(m: Moments) -> float:
    """Return the least ridge that data may choose."""
    return LOWEST * float(np.trace(m.gram)) / m.n
