"""What regressors share: targets, of all rows at once or of parts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from sklearn.base import MultiOutputMixin, RegressorMixin

from kernattn._arrays.namespaces import Array, Float64
from kernattn.sklearn._inputs import regression
from kernattn.sklearn._on_moments import OnMoments


class Regressor(MultiOutputMixin, RegressorMixin, OnMoments):
    """A regressor on moments."""

    _least_rows: ClassVar[int] = 1

    @abstractmethod
    def _take(self, x: Array, y: Float64, weights: Float64 | None, first: bool) -> None:
        """Add rows and their targets to the moments."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the map, and fit.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) or (n, c) array_like
            Targets.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        self._take(*regression(self, X, y, sample_weight, True, ensure_min_samples=self._least_rows), True)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to those that were given before; the first ones draw the map.

        The equations are solved when a prediction is asked for.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : (n,) or (n, c) array_like
            Targets.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The estimator.
        """
        first = not self._begun
        self._take(*regression(self, X, y, sample_weight, first), first)
        return self
