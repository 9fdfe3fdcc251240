"""Feature maps as transformers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import one_of, shown
from kernattn._runtime.deprecated import old_arguments
from kernattn.errors import ParameterError
from kernattn.features import LANDMARKS, FeatureMap, random_features
from kernattn.kernels import Kernel, Polynomial
from kernattn.sklearn._inputs import check_rows, is_named, seed_of
from kernattn.sklearn._maps import (
    MapTransformer,
    RandomMapEstimator,
    draw_map,
    make_kernel,
    nystrom_map,
)
from kernattn.sklearn._pairs import OfPairs
from kernattn.sklearn._parameters import check_parameters


class _Features(MapTransformer):
    """A transformer that draws a map when it is fitted."""

    @abstractmethod
    def _draw(self, x: Any) -> FeatureMap:
        """Return the map for rows like these."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the map for rows X (n, d); y is ignored."""
        check_parameters(self)
        self.feature_map_ = self._draw(check_rows(self, X))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Draw the map in the first call, as `fit` does; later ones check their rows alone."""
        if not hasattr(self, "feature_map_"):
            return self.fit(X)
        check_rows(self, X, reset=False)
        return self

    def _coordinates(self, x: Array) -> Array:
        return self.feature_map_(x)

    @property
    def _n_features_out(self) -> int:
        return self.feature_map_.num_features_of(self.n_features_in_)


class RandomFeatures(RandomMapEstimator, _Features):
    r"""Random features of a kernel, :math:`E\,\phi(x)^T \phi(y) = k(x, y)`; see `kernattn.random_features`.

    Parameters
    ----------
    kernel : str or Kernel
        A name in `kernattn.kernels.KERNELS`, which is that kernel with its defaults, or a kernel.
    lengthscale : float, (d,) array_like, "scale" or None
        The lengthscale of a kernel of x - y. "scale" takes `kernattn.kernels.usual_lengthscale` of the rows. None is
        "scale" for a kernel given by name, and leaves a kernel object as it is. Any other takes the place of the
        lengthscale 1 of an object, and is refused beside a lengthscale of its own.
    num_features : int
        Number M of features; of AdditiveChi2, the largest odd multiple of d up to that, d at least.
    estimator : str
        "auto", the kernel's usual one, a name of `kernattn.features.estimators`, or a name in
        `kernattn.features.LANDMARKS`, for a Nystrom map of such landmarks. An estimator that is shaped by data sees up
        to 2,048 of the rows, evenly spaced.
    projection : str, Projection or None
        A name in `kernattn.projections.PROJECTIONS`, or a spec. None is "orthogonal", but "iid" for Cauchy, Laplacian,
        Periodic, Sech and SkewedChi2, whose frequencies are drawn axis by axis.
    random_state : int, RandomState or None
        Source of the draw; an integer draws what ``rng`` draws with it. None takes NumPy's global state.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import RandomFeatures
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> RandomFeatures(num_features=64, random_state=0).fit_transform(x).shape
    (100, 64)
    """

    def _draw(self, x: Any) -> FeatureMap:
        return draw_map(self, x, make_kernel(self.kernel, self.lengthscale, x), self.estimator)


@dataclass(eq=False, repr=False)
class NystromFeatures(_Features):
    r"""Nystrom features, :math:`\phi(x) = K_{LL}^{-1/2} k(L, x)` for landmarks L; see `kernattn.features.nystrom`.

    Parameters
    ----------
    kernel : str, Kernel or callable
        As `RandomFeatures` takes it. With "precomputed", X is a matrix of kernel values with the rows of `fit`, (n, n)
        in `fit` and (k, n) in `transform`. A function of two rows (d,) of float64 returns a number, as scikit-learn's
        `Nystroem` takes it; it is called once for each pair, which is slow.
    lengthscale : object
        As `RandomFeatures` takes it; None for "precomputed" and functions.
    num_features : int
        Number of landmarks; all rows, where there are fewer.
    method : str
        How landmarks are chosen, a name in `kernattn.features.LANDMARKS`. "greedy" and "rpcholesky" stop at the
        numerical rank of the kernel matrix.
    random_state : int, RandomState or None
        Source of the choice.
    kernel_params : dict or None
        Keywords for a function that is the kernel.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import NystromFeatures
    >>> x = np.random.default_rng(0).standard_normal((100, 4))
    >>> NystromFeatures(num_features=20, random_state=0).fit_transform(x).shape
    (100, 20)
    """

    kernel: Any = "gaussian"
    _: KW_ONLY
    lengthscale: Any = None
    num_features: int = 256
    method: str = "rpcholesky"
    random_state: Any = None
    kernel_params: Any = None

    @property
    def _is_precomputed(self) -> bool:
        return is_named(self.kernel, "precomputed")

    @property
    def _takes_sparse(self) -> bool:
        return not (self._is_precomputed or self._of_pairs or is_named(self.method, "kmeans"))

    @property
    def _of_pairs(self) -> bool:
        return callable(self.kernel) and not isinstance(self.kernel, Kernel | type)

    def _draw(self, x: Any) -> FeatureMap:
        kernel: Any = self.kernel
        if self.kernel_params is not None and not self._of_pairs:
            raise ParameterError(f"kernel_params are for a function that is the kernel; got kernel={shown(kernel)}")
        if not (self._of_pairs or self._is_precomputed):
            kernel = make_kernel(kernel, self.lengthscale, x)
        elif self.lengthscale is not None:
            raise ParameterError(f"lengthscale must be None for kernel={shown(kernel)}; got {shown(self.lengthscale)}")
        elif self._of_pairs:
            kernel = OfPairs(kernel, dict(self.kernel_params or {}))
        return nystrom_map(kernel, self, one_of("method", self.method, LANDMARKS), x)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags


for _takes in ("__init__", "set_params"):  # the constructor is the dataclass's: nothing to decorate above
    setattr(NystromFeatures, _takes, old_arguments(landmarks="method")(getattr(NystromFeatures, _takes)))


@dataclass(eq=False, repr=False)
class PolynomialSketchFeatures(_Features):
    r"""Sketches of a polynomial kernel, :math:`E\,\phi(x)^T \phi(y) = (\gamma\, x^T y + c_0)^p`, of dense and CSR rows.

    Parameters
    ----------
    degree, gamma, coef0 : int, float, float
        The power p, the factor, and the constant, 0 or more.
    num_features : int
        Number M of features.
    estimator : str
        "auto", which is "tensor_sketch", or another name of ``kernattn.features.estimators(Polynomial())``; "exact"
        makes blocks of sparse rows dense.
    random_state : int, RandomState or None
        Source of the draw.

    Attributes
    ----------
    feature_map_, n_features_in_ : object
        The map, and the number d of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from kernattn.sklearn import PolynomialSketchFeatures
    >>> x = sparse.random_array((100, 1000), density=0.01, format="csr", rng=0)
    >>> PolynomialSketchFeatures(num_features=128, random_state=0).fit_transform(x).shape
    (100, 128)
    """

    degree: int = 2
    _: KW_ONLY
    gamma: float = 1.0
    coef0: float = 0.0
    num_features: int = 256
    estimator: str = "auto"
    random_state: Any = None

    def _draw(self, x: Any) -> FeatureMap:
        kernel = Polynomial(self.degree, self.gamma, self.coef0)
        return random_features(kernel, x.shape[1], self.num_features, self.estimator, rng=seed_of(self.random_state))
