"""Feature maps from the plain parameters of estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scipy import sparse
from sklearn.base import BaseEstimator

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import one_of, positive_integer, shown
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import LANDMARKS, FeatureMap, nystrom, random_features
from kernattn.kernels import KERNELS, Cauchy, Kernel, Laplacian, Polynomial, Sech, SkewedChi2, usual_lengthscale
from kernattn.kernels._stationary import Stationary
from kernattn.sklearn._inputs import seed

BY_AXES = (Cauchy, Laplacian, Sech, SkewedChi2)
SAMPLE = 2048  # rows that estimators shaped by data look at


def kernel_of(kernel: Any, lengthscale: Any, x: Array, weights: Array | None) -> Kernel:
    """Return the kernel of that name, or the one that is given, of that lengthscale."""
    named: object = kernel
    if isinstance(named, str):
        found = KERNELS[one_of("kernel", named, KERNELS)]()
    elif isinstance(named, Kernel):
        found = named
    else:
        raise DTypeError(f"kernel must be one of {', '.join(KERNELS)}, or a kernel of ka.kernels; got {shown(named)}")
    if not isinstance(found, Stationary):
        if lengthscale is not None:
            raise ParameterError(f"lengthscale must be None for {shown(found)}; got {shown(lengthscale)}")
        return found
    if lengthscale is None and not isinstance(named, str):
        return found
    if lengthscale is None or (isinstance(lengthscale, str) and lengthscale == "scale"):
        lengthscale = usual_lengthscale(x, weights)
    return replace(found, lengthscale=lengthscale)  # type: ignore[type-var]


def landmarks_of(kernel: Kernel, estimator: Any, landmarks: Any, x: Array) -> FeatureMap:
    """Return the Nystrom map of landmarks among the rows, of as many as there are at most."""
    one_of("landmarks", landmarks, LANDMARKS)
    number = min(positive_integer("num_features", estimator.num_features), x.shape[0])
    return nystrom(kernel, x, number, landmarks, rng=seed(estimator.random_state))


def accepted(kernel: Any, name: Any) -> str | bool:
    """Return which sparse rows a map takes: sketches of polynomials alone take CSR."""
    sketched = isinstance(kernel, Polynomial) or (isinstance(kernel, str) and kernel == "polynomial")
    return "csr" if sketched and name not in ("exact", *LANDMARKS) else False


def drawn(estimator: Any, x: Array, weights: Array | None = None) -> FeatureMap:
    """Return the map that an estimator's parameters ask for, drawn for rows x."""
    kernel, name = kernel_of(estimator.kernel, estimator.lengthscale, x, weights), estimator.estimator
    if isinstance(name, str) and name in LANDMARKS:
        return landmarks_of(kernel, estimator, name, x)
    projection = estimator.projection
    if projection is None:
        projection = "iid" if isinstance(kernel, BY_AXES) else "orthogonal"
    return random_features(
        kernel,
        x.shape[1],
        estimator.num_features,
        name,
        projection,
        data=None if name == "auto" or sparse.issparse(x) else x[:: -(-x.shape[0] // SAMPLE), :],
        rng=seed(estimator.random_state),
    )


class Mapped(BaseEstimator):
    """An estimator on the features of a map."""

    feature_map_: FeatureMap

    @property
    def _accepts(self) -> str | bool:
        """Which sparse rows the map takes."""
        return False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._accepts)
        return tags


class Drawing(Mapped):
    """An estimator that has the parameters of `drawn`."""

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        lengthscale: Any = None,
        num_features: int = 256,
        estimator: str = "auto",
        projection: Any = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.num_features = num_features
        self.estimator = estimator
        self.projection = projection
        self.random_state = random_state

    @property
    def _accepts(self) -> str | bool:
        return accepted(self.kernel, self.estimator)
