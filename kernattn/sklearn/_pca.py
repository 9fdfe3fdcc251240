"""Principal components of features."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernattn._runtime.checks import positive_integer
from kernattn.errors import ParameterError
from kernattn.sklearn._inputs import rows, weights_of
from kernattn.sklearn._on_moments import OnMoments
from kernattn.solvers import Components, Moments, pca, whiten


class FeaturePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, OnMoments):
    r"""Principal components of features, eigenvectors of :math:`\sum_i w_i (\phi_i - \bar\phi)(\phi_i - \bar\phi)^T`.

    It is kernel PCA of the map's kernel by `kernattn.solvers.pca` of the moments of the rows, so rows can come in
    parts, and memory does not depend on their number. A weight counts a row that many times.

    Parameters
    ----------
    n_components : int or None
        Number of components. None takes all whose variance is above rounding if they are whitened, else as many as
        there are features.
    kernel, lengthscale, num_features, estimator, projection : object
        The map, as `RandomFeatures` takes them.
    whiten : bool
        Whether coordinates are scaled to variance 1.
    random_state : int, RandomState or None
        Source of the draw, as `RandomFeatures` takes it.

    Attributes
    ----------
    feature_map_ : FeatureMap
        The map.
    moments_ : Moments
        Sums over the rows.
    solution_ : kernattn.solvers.Components
        The directions, their variances and shares.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import FeaturePCA
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> FeaturePCA(3, num_features=64, random_state=0).fit_transform(x).shape
    (100, 3)
    """

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: Any = "gaussian",
        lengthscale: Any = None,
        num_features: int = 256,
        estimator: str = "auto",
        projection: Any = None,
        whiten: bool = False,
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
        self.n_components = n_components
        self.whiten = whiten

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Draw the map, and fit.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : None
            Ignored.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The transformer.
        """
        x = rows(self, X, ensure_min_samples=2)
        self._add(x, None, weights_of(sample_weight, x), True)
        self.solution_  # noqa: B018
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to those that were given before; the first ones draw the map.

        The components are found when coordinates are asked for.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : None
            Ignored.
        sample_weight : (n,) array_like, optional
            How often each row counts.

        Returns
        -------
        self
            The transformer.
        """
        first = not self._begun
        x = rows(self, X, reset=first)
        self._add(x, None, weights_of(sample_weight, x), first)
        return self

    def transform(self, X: Any) -> Any:
        """Return coordinates along the components.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.

        Returns
        -------
        (n, n_components) array
            The coordinates: float32 of float32, else float64.
        """
        check_is_fitted(self)
        x = rows(self, X, reset=False)
        return self.solution_.transform(x)

    @property
    def _n_features_out(self) -> int:
        return len(self.solution_.variances)

    def _solve(self, m: Moments) -> Components:
        k = self.n_components
        if k is not None and positive_integer("n_components", k) > len(m.s):
            raise ParameterError(f"n_components must be {len(m.s)} at most, the number of features; got {k}")
        return whiten(m, k) if self.whiten else pca(m, len(m.s) if k is None else k)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
