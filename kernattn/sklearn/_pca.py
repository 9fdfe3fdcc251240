"""Principal components of features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import boolean, positive_integer
from kernattn.errors import ParameterError
from kernattn.sklearn._inputs import check_rows, check_weights
from kernattn.sklearn._maps import MapTransformer
from kernattn.sklearn._on_moments import OnMoments
from kernattn.solvers import Components, Moments, pca, whiten


@dataclass(eq=False, repr=False)
class FeaturePCA(MapTransformer, OnMoments):
    r"""Principal components of features, eigenvectors of :math:`\sum_i w_i (\phi_i - \bar\phi)(\phi_i - \bar\phi)^T`.

    It is kernel PCA of the map's kernel by `kernattn.solvers.pca` of the moments of the rows, so rows can come in
    parts, and memory does not depend on their number. A weight counts a row that many times.

    Parameters
    ----------
    n_components : int or None
        Number of components. None takes all whose variance is above rounding if they are whitened, else as many as
        there are features.
    kernel, lengthscale, num_features, estimator, projection, random_state : object
        The map and its draw, as `RandomFeatures` takes them.
    whiten : bool
        Whether coordinates are scaled to variance 1.

    Attributes
    ----------
    feature_map_, n_features_in_, moments_ : object
        The map, the number d of columns, and sums over the rows.
    solution_ : kernattn.solvers.Components
        The directions, their variances and shares.
    explained_variance_, explained_variance_ratio_ : numpy.ndarray
        Variances of the features along the components, and the same over the variance of all features.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeaturePCA
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> FeaturePCA(3, num_features=64, random_state=0).fit_transform(x).shape
    (100, 3)
    """

    n_components: int | None = 2
    kernel: Any = field(default="gaussian", kw_only=True)
    whiten: bool = field(default=False, kw_only=True)

    @property
    def explained_variance_(self) -> Float64:
        """Variances of the features along the components (k,)."""
        return self.solution_.variances  # type: ignore[no-any-return]

    @property
    def explained_variance_ratio_(self) -> Float64:
        """The same over the variance of all features, whitened or not."""
        return self.solution_.explained  # type: ignore[no-any-return]

    def _take(self, x: Any, y: Any, sample_weight: Any, first: bool, **options: Any) -> None:
        x = check_rows(self, x, reset=first, **options)
        self._add(x, None, check_weights(sample_weight, x, first), first)

    def _coordinates(self, x: Array) -> Array:
        return self.solution_.transform(x)

    @property
    def _n_features_out(self) -> int:
        return len(self.solution_.variances)

    def _solve(self, m: Moments) -> Components:
        k = self.n_components
        if k is not None and positive_integer("n_components", k) > len(m.s):
            raise ParameterError(f"n_components must be {len(m.s)} at most, the number of features; got {k}")
        return whiten(m, k) if boolean("whiten", self.whiten) else pca(m, len(m.s) if k is None else k)
