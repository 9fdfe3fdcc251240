"""Estimators that are fitted from moments: the first rows draw the map, later ones add to the sums."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.csr import take_rows
from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import one_of
from kernattn._runtime.deprecated import warn_user
from kernattn.features import LANDMARKS, Concatenated, FeatureMap, Linear, Transformed
from kernattn.kernels import Stationary
from kernattn.sklearn._drawn import draw_for_numbers, draw_without_targets, without_zeros
from kernattn.sklearn._inputs import array_beside, check_ridge, lowest_ridge
from kernattn.sklearn._maps import RandomMapEstimator
from kernattn.sklearn._parameters import OBJECTIVES, check_parameters
from kernattn.solvers import Moments, Ridge, ridge
from kernattn.solvers._check import widen
from kernattn.solvers._digests import FOLDS, digests_of_all_bits, folds_of
from kernattn.solvers._moments import count_weights
from kernattn.solvers._ridge import mean_fit
from kernattn.solvers._spectrum import BLOCK
from kernattn.solvers._sums import check_rows, sum_rows

FEW = 100  # rows that tell a lengthscale to a tenth
DISTINCT = 25  # rows that differ: of fewer, folds lack what is near those that are left out


class OnMoments(RandomMapEstimator, ABC):
    """An estimator whose fit is a function of moments, which is evaluated when it is first asked for."""

    moments_: Moments
    _sums: dict[int, Moments]  # of each fold; of all rows where there are none
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
        check_parameters(self)
        self._in_parts = False
        self._take(X, y, sample_weight, True, ensure_min_samples=self._min_rows)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, as `fit` takes them, to those that were given before; the first ones draw the map.

        The equations are solved when a prediction, or a coordinate, is asked for. A lengthscale or landmarks that data
        choose are those of the first rows for good; a warning says so where these are fewer than 100.
        """
        return self._take_part(X, y, sample_weight)

    def _take_part(self, x: Any, y: Any, sample_weight: Any, **options: Any) -> Self:
        check_parameters(self)
        first, self._in_parts = not self._has_begun, True
        self._take(x, y, sample_weight, first, **options)
        self._warn_of_few(first)
        return self

    def _warn_of_few(self, first: bool) -> None:
        """Warn where few rows have chosen what later ones do not change."""
        scale, n = self.lengthscale, self.moments_.n
        phi = self.feature_map_
        within = phi.inner if isinstance(phi, Transformed) else phi
        drawn = within.maps[0] if isinstance(within, Concatenated) else within  # beside a line
        by_rows = (
            scale is None and isinstance(self.kernel, str) and isinstance(getattr(drawn, "kernel", None), Stationary)
        )
        by_rows = by_rows or isinstance(drawn, Linear) or isinstance(phi, Transformed)
        if first and n < FEW and (by_rows or isinstance(scale, str) or self.estimator in LANDMARKS):
            warn_user(
                f"the first {n} rows choose the lengthscale or the landmarks, and later rows change neither: give "
                f"a number as lengthscale=, or {FEW} rows or more at first",
                UserWarning,
            )

    def _split(self, x: Array) -> NDArray[np.int64] | None:
        """Return the folds of rows (n,); None has all in one."""
        return None

    def _add(self, x: Array, y: Float64 | None, weights: Float64 | None, first: bool) -> None:
        """Add rows to the moments, each fold to its own; the first ones draw the map. Weights of 0 leave rows out."""
        if weights is not None and not weights.any():
            return
        x, y, weights = without_zeros(x, y, weights)
        phi = self._draw(x, y, weights) if first else self.feature_map_
        sums: dict[int, Moments] = {} if first else dict(self._sums)
        folds = self._split(x)
        features = _features_of_few(phi, x, folds is None)
        for fold in (0,) if folds is None else np.unique(folds).tolist():
            rows = slice(None) if folds is None else np.flatnonzero(folds == fold)
            here = x if folds is None else take_rows(x, rows)
            targets, counts = (array_beside(x, None if each is None else each[rows]) for each in (y, weights))
            checked = check_rows(phi, here, targets, counts, "float64", None)
            part = sum_rows(checked, None if features is None else features[rows])
            sums[fold] = sums[fold] + part if fold in sums else part
        self.feature_map_, self._sums, self.moments_ = phi, sums, reduce(add, sums.values())
        self._solution = None

    def _draw(self, x: Array, y: Float64 | None, weights: Float64 | None) -> FeatureMap:
        """Return the map for the first rows, whose targets may tune its lengthscale."""
        return draw_without_targets(self, x, weights)

    @property
    def _has_begun(self) -> bool:
        return hasattr(self, "moments_")

    @property
    def solution_(self) -> Any:
        """The fit, an object of `kernattn.solvers`."""
        check_is_fitted(self, "moments_")
        if self._solution is None:
            self._solution = self._solve(count_weights(self.moments_))
        return self._solution


@dataclass(eq=False, repr=False, kw_only=True)
class LeastSquares(OnMoments):
    """An estimator whose fit is a `kernattn.solvers.ridge`."""

    estimator: Any = None
    ridge: Any = None
    objective: str = "folds"
    fit_intercept: bool = True
    linear: bool | None = None
    metric: str | None = None

    def _add(self, x: Array, y: Float64 | None, weights: Float64 | None, first: bool) -> None:
        if self.ridge is not None and y is not None:
            check_ridge(self.ridge, 1 if y.ndim == 1 else y.shape[1])
        super()._add(x, y, weights, first)
        self._row: np.uint64  # a digest of the first that counts
        self._alike: bool  # whether all rows are that one
        if first or self._alike:
            digests = digests_of_all_bits(without_zeros(x, None, weights)[0])
            self._row = digests[0] if first else self._row
            self._alike = bool(np.all(digests == self._row))

    def _draw(self, x: Array, y: Float64 | None, weights: Float64 | None) -> FeatureMap:
        assert y is not None
        return draw_for_numbers(self, x, y, weights)

    def _split(self, x: Array) -> NDArray[np.int64] | None:
        name = one_of("objective", self.objective, OBJECTIVES)
        return None if self.ridge is not None or name != "folds" else folds_of(x)

    def _solve(self, m: Moments) -> Ridge:
        if self.fit_intercept and self._alike:
            return mean_fit(m)
        folds = [count_weights(each) for each in self._sums.values() if each.n]
        whole = len(folds) < 2 or any(m.n - each.n < 2 for each in folds)  # too few rows, or a penalty that is given
        whole = whole or _uneven([each.n for each in folds])
        objective = "evidence" if self.objective == "folds" and whole else self.objective
        given = folds if objective == "folds" else m
        return ridge(given, self.ridge, objective=objective, intercept=self.fit_intercept, lowest=lowest_ridge(m))


def _features_of_few(phi: FeatureMap, x: Array, together: bool) -> Float64 | None:
    """Return the features of all rows, where they are few: of each fold apart they take longer. None says they are not.

    No more rows than features are few: moments hold them. Features that are not finite are left to the sums, which say
    so.
    """
    if not isinstance(x, np.ndarray):
        return None
    n, m = len(x), phi.num_features_of(x.shape[1])
    if n > m and (together or n * m > BLOCK):
        return None
    features: Float64 = phi(widen(x))
    return features if np.isfinite(features).all() else None


def _uneven(counts: list[int]) -> bool:
    """Return whether folds differ as those of few distinct rows do, some 25, and more than chance lets them.

    Folds then lack all rows like those that they are asked for, and favour the mean. Of D distinct rows, each n / D
    times, the chi-squared statistic of the counts is near 4 n / D; of rows that differ it is 20 with p = 0.0005.
    """
    n = sum(counts)
    return FOLDS * sum(count**2 for count in counts) / n - n > max(20.0, 4 * n / DISTINCT)
