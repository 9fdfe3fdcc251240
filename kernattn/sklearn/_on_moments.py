"""Estimators that are fitted from moments: the first rows draw the map, later ones add to the sums."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.namespaces import Array, Float64
from kernattn.sklearn._inputs import array_beside
from kernattn.sklearn._maps import RandomMapEstimator, draw_map
from kernattn.solvers import Moments, Ridge, moments, ridge

LOWEST = 1e-5  # of the features' mean squared norm: where less noise than that is told from none, rounding tells


class OnMoments(RandomMapEstimator, ABC):
    """An estimator whose fit is a function of moments, which is evaluated when it is first asked for."""

    moments_: Moments
    _min_rows: ClassVar[int] = 2

    @abstractmethod
    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        """Check rows, and add them to the moments by `_add`."""

    @abstractmethod
    def _solve(self, m: Moments) -> Any:
        """Return the fit."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Draw the map, and fit rows X (n, d); `sample_weight` (n,) says how often each counts.

        A regressor takes targets y (n,) or (n, c), a classifier labels (n,); a transformer ignores them.
        """
        self._take(X, y, sample_weight, True, ensure_min_samples=self._min_rows)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, as `fit` takes them, to those that were given before; the first ones draw the map.

        The equations are solved when a prediction, or a coordinate, is asked for.
        """
        self._take(X, y, sample_weight, not self._begun)
        return self

    def _add(self, x: Array, y: Float64 | None, weights: Float64 | None, first: bool) -> None:
        """Add rows to the moments; the first ones draw the map."""
        targets, counts = array_beside(x, y), array_beside(x, weights)
        phi = draw_map(self, x, counts) if first else self.feature_map_
        added = moments(x, phi, y=targets, weights=counts)
        self.feature_map_, self.moments_ = phi, added if first else self.moments_ + added
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


@dataclass(eq=False, repr=False, kw_only=True)
class LeastSquares(OnMoments):
    """An estimator whose fit is a `kernattn.solvers.ridge`."""

    ridge: Any = None
    fit_intercept: bool = True

    def _solve(self, m: Moments) -> Ridge:
        return ridge(m, self.ridge, intercept=self.fit_intercept, lowest=lowest_ridge(m))


def lowest_ridge(m: Moments) -> float:
    """Return the least ridge that data may choose."""
    return LOWEST * float(np.trace(m.gram)) / m.n
