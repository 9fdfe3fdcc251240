"""Least squares on moments: of targets, and of labels as signs."""

from __future__ import annotations

from typing import Any

from kernattn.sklearn._on_moments import OnMoments, lowest
from kernattn.solvers import Moments, Ridge, ridge


class LeastSquares(OnMoments):
    """An estimator whose fit is a `kernattn.solvers.ridge`."""

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        lengthscale: Any = None,
        num_features: int = 256,
        estimator: str = "auto",
        projection: Any = None,
        ridge: Any = None,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            kernel,
            lengthscale=lengthscale,
            num_features=num_features,
            estimator=estimator,
            projection=projection,
            random_state=random_state,
        )
        self.ridge = ridge
        self.fit_intercept = fit_intercept

    def _solve(self, m: Moments) -> Ridge:
        return ridge(m, self.ridge, intercept=self.fit_intercept, lowest=lowest(m))
