"""Principal components of features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import boolean, positive_integer, positive_number
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import random_features
from kernattn.kernels import Gaussian
from kernattn.sklearn._candidates import usual_of
from kernattn.sklearn._inputs import array_beside, check_floats, check_rows, check_weights, lowest_ridge, seed_of
from kernattn.sklearn._maps import MapTransformer
from kernattn.sklearn._on_moments import OnMoments
from kernattn.solvers import Components, Moments, Ridge, moments, pca, ridge, whiten
from kernattn.solvers._ridge import choose


def _has_inverse(estimator: Any) -> bool:
    if not estimator.fit_inverse_transform:
        raise AttributeError("inverse_transform is there with fit_inverse_transform=True")
    return True


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
    fit_inverse_transform : bool
        Whether `fit` also learns the way back, for `inverse_transform`. It reads the rows, which are dense, once more.
    alpha : float or None
        The ridge of the way back, on the sum over rows, 1 as in scikit-learn's `KernelPCA`; None takes that of the
        largest evidence, but not below 1e-5 of the features' mean squared norm. It is often better, and takes a weight
        for one over a variance, not for a count.

    Attributes
    ----------
    feature_map_, n_features_in_, moments_ : object
        The map, the number d of columns, and sums over the rows.
    solution_ : kernattn.solvers.Components
        The directions, their variances and shares.
    explained_variance_, explained_variance_ratio_ : numpy.ndarray
        Variances of the features along the components, and the same over the variance of all features.
    inverse_ : kernattn.solvers.Ridge
        The way back from coordinates to rows, where `fit` has learnt it.

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
    fit_inverse_transform: bool = field(default=False, kw_only=True)
    alpha: float | None = field(default=1.0, kw_only=True)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Draw the map, and fit rows X (n, d); `sample_weight` (n,) says how often each counts, and y is ignored."""
        back = boolean("fit_inverse_transform", self.fit_inverse_transform)
        if back and is_sparse(X):
            raise ParameterError("fit_inverse_transform must be False for sparse rows: the way back is to dense ones")
        if back and self.alpha is not None:
            positive_number("alpha", self.alpha)
        super().fit(X, y, sample_weight)
        if back:
            x = self._check_new(X)
            self.inverse_ = self._fit_inverse(x, check_weights(sample_weight, x))
        return self

    @available_if(_has_inverse)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        r"""Return rows (n, d) whose coordinates are about X (n, k): :math:`\hat x(z) = W^T \psi(z) + b`.

        W and b are the ridge regression from coordinates to rows, as of scikit-learn's `KernelPCA`, on as many random
        features :math:`\psi` of a Gaussian kernel of the coordinates, of their usual lengthscale. The method is there
        with ``fit_inverse_transform=True``, and needs all rows in one `fit`.
        """
        check_is_fitted(self)
        if not hasattr(self, "inverse_"):
            raise ParameterError("inverse_transform needs all rows in one fit, after fit_inverse_transform=True is set")
        z = check_floats(X)
        if z.shape[1] != self._n_features_out:
            raise ShapeError(f"X must be (n, {self._n_features_out}), coordinates; got shape {tuple(z.shape)}")
        return self.inverse_.predict(z)

    def _fit_inverse(self, x: Array, weights: Float64 | None) -> Ridge:
        z, counts = self._coordinates(x), array_beside(x, weights)
        kernel = Gaussian(usual_of(z, counts))
        psi = random_features(kernel, z.shape[1], self.num_features, rng=seed_of(self.random_state))
        m = moments(z, psi, y=x, weights=counts)
        if self.alpha is None:  # coordinates of few rows often have no noise, of which nobody need be warned
            return choose(m, "evidence", True, lowest_ridge(m))
        return ridge(m, self.alpha)

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
        if hasattr(self, "inverse_"):
            del self.inverse_  # which is of other rows
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
