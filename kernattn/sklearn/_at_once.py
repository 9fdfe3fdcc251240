"""Estimators that are fitted at once, by steps of a solver that go over all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from warnings import warn

from sklearn.exceptions import ConvergenceWarning

from kernattn._arrays.namespaces import Array, Float64
from kernattn.features import FeatureMap
from kernattn.sklearn._inputs import array_beside
from kernattn.sklearn._maps import RandomMapEstimator


@dataclass(eq=False, repr=False, kw_only=True)
class FittedAtOnce(RandomMapEstimator):
    """An estimator whose fit is that of a solver which takes steps."""

    ridge: float | None = None
    fit_intercept: bool = True
    max_iter: int = 1000
    linear: bool | None = None
    metric: str | None = None

    def _solve(
        self,
        solver: Callable[..., Any],
        x: Array,
        phi: FeatureMap,
        y: Any,
        weights: Float64 | None,
        penalty: float | None,
        **options: Any,
    ) -> None:
        """Fit by a solver, keep the map and the fit, and warn of one that has not come to its end."""
        fit = solver(
            x,
            phi,
            y=y,
            penalty=penalty,
            weights=array_beside(x, weights),
            intercept=self.fit_intercept,
            max_iterations=self.max_iter,
            **options,
        )
        if not fit.converged:
            message = f"the fit has not converged in {fit.iterations} steps: raise max_iter or ridge"
            warn(message, ConvergenceWarning, stacklevel=3)
        self.feature_map_, self.solution_, self.n_iter_ = phi, fit, fit.iterations
