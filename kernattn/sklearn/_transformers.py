"""Feature maps as transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Polynomial
from kernattn.sklearn._drawn import Drawing, Mapped, accepted, drawn, kernel_of, landmarks_of
from kernattn.sklearn._inputs import rows, seed


class _Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Mapped, ABC):
    """A transformer that draws a map when it is fitted."""

    @abstractmethod
    def _draw(self, x: Any) -> FeatureMap:
        """Return the map for rows like these."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the map.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : None
            Ignored.

        Returns
        -------
        self
            The transformer.
        """
        self.feature_map_ = self._draw(rows(self, X))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Draw the map in the first call; later ones check their rows alone.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.
        y : None
            Ignored.

        Returns
        -------
        self
            The transformer.
        """
        if not hasattr(self, "feature_map_"):
            return self.fit(X)
        rows(self, X, reset=False)
        return self

    def transform(self, X: Any) -> Any:
        """Return the features.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.

        Returns
        -------
        (n, M) array
            The features: float32 of float32, else float64.
        """
        check_is_fitted(self)
        return self.feature_map_(rows(self, X, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.feature_map_.num_features_of(self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class RandomFeatures(Drawing, _Features):
    r"""Random features of a kernel, :math:`E\,\phi(x)^T \phi(y) = k(x, y)`; see `kernattn.random_features`.

    Parameters
    ----------
    kernel : str or Kernel
        A name in `kernattn.kernels.KERNELS`, which is that kernel with its defaults, or a kernel.
    lengthscale : float, (d,) array_like, "scale" or None
        The lengthscale of a kernel of x - y. "scale" takes `kernattn.kernels.usual_lengthscale` of the rows. None is
        "scale" for a kernel given by name, and leaves a kernel object as it is.
    num_features : int
        Number M of features.
    estimator : str
        "auto", the kernel's usual one, a name of `kernattn.features.estimators`, or a name in
        `kernattn.features.LANDMARKS`, for a Nystrom map of such landmarks. An estimator that is shaped by data sees up
        to 2,048 of the rows, evenly spaced.
    projection : str, Projection or None
        A name in `kernattn.projections.PROJECTIONS`, or a spec. None is "orthogonal", but "iid" for Cauchy, Laplacian,
        Sech and SkewedChi2, whose frequencies are drawn axis by axis.
    random_state : int, RandomState or None
        Source of the draw; an integer draws what ``rng`` draws with it. None takes NumPy's global state.

    Attributes
    ----------
    feature_map_ : FeatureMap
        The map.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import RandomFeatures
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> RandomFeatures(num_features=64, random_state=0).fit_transform(x).shape
    (100, 64)
    """

    def _draw(self, x: Any) -> FeatureMap:
        return drawn(self, x)


class NystromFeatures(_Features):
    r"""Nystrom features, :math:`\phi(x) = K_{LL}^{-1/2} k(L, x)` for landmarks L; see `kernattn.features.nystrom`.

    Parameters
    ----------
    kernel, lengthscale : object
        As `RandomFeatures` takes them.
    num_features : int
        Number of landmarks; all rows, where there are fewer.
    landmarks : str
        How landmarks are chosen, a name in `kernattn.features.LANDMARKS`. "greedy" and "rpcholesky" stop at the
        numerical rank of the kernel matrix.
    random_state : int, RandomState or None
        Source of the choice.

    Attributes
    ----------
    feature_map_ : Nystrom
        The map.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import NystromFeatures
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> NystromFeatures(num_features=20, random_state=0).fit_transform(x).shape
    (100, 20)
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        lengthscale: Any = None,
        num_features: int = 256,
        landmarks: str = "rpcholesky",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.num_features = num_features
        self.landmarks = landmarks
        self.random_state = random_state

    def _draw(self, x: Any) -> FeatureMap:
        return landmarks_of(kernel_of(self.kernel, self.lengthscale, x, None), self, self.landmarks, x)


class PolynomialSketchFeatures(_Features):
    r"""Sketches of a polynomial kernel, :math:`E\,\phi(x)^T \phi(y) = (\gamma\, x^T y + c_0)^p`, of dense and CSR rows.

    Parameters
    ----------
    degree : int
        The power p.
    gamma : float
        The factor.
    coef0 : float
        The constant, 0 or more.
    num_features : int
        Number M of features.
    estimator : str
        "auto", which is "tensor_sketch", or another name of ``kernattn.features.estimators(Polynomial())``; "exact"
        takes dense rows alone.
    random_state : int, RandomState or None
        Source of the draw.

    Attributes
    ----------
    feature_map_ : FeatureMap
        The map.
    n_features_in_ : int
        Number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from kernattn.sklearn import PolynomialSketchFeatures
    >>> x = sparse.random_array((100, 1000), density=0.01, format="csr", rng=0)
    >>> PolynomialSketchFeatures(num_features=128, random_state=0).fit_transform(x).shape
    (100, 128)
    """

    def __init__(
        self,
        degree: int = 2,
        *,
        gamma: float = 1.0,
        coef0: float = 0.0,
        num_features: int = 256,
        estimator: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.num_features = num_features
        self.estimator = estimator
        self.random_state = random_state

    @property
    def _accepts(self) -> str | bool:
        return accepted("polynomial", self.estimator)

    def _draw(self, x: Any) -> FeatureMap:
        kernel = Polynomial(self.degree, self.gamma, self.coef0)
        return random_features(kernel, x.shape[1], self.num_features, self.estimator, rng=seed(self.random_state))
