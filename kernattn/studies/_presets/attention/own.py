"""Estimators of one's own, named as module:object: a feature map, or a function that makes one of any size."""

from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import shown
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Kernel
from kernattn.metrics._settled import where_settled
from kernattn.studies._worker import load_named


def is_own(estimator: object) -> bool:
    """Whether an estimator is named as module:object."""
    return isinstance(estimator, str) and ":" in estimator


def check_own(estimator: str) -> str:
    """Return the name of an estimator of one's own, behind which a map or a function must stand."""
    value = load_named(estimator)
    if not (isinstance(value, FeatureMap) or callable(value)):
        raise ParameterError(
            f"{estimator} must be a feature map, or a function of dim and num_features that returns one; "
            f"got {shown(value)}"
        )
    if not isinstance(value, FeatureMap) and (takes := _parameters(value)) is not None:
        raise ParameterError(
            f"{estimator} must be a function of dim and num_features, by these names; it takes {takes}"
        )
    return estimator


def _parameters(function: Any) -> str | None:
    """Return the parameters of a function that cannot be called with dim and num_features alone; else None."""
    try:
        takes = signature(function)
    except (TypeError, ValueError):  # a function of C tells nothing
        return None
    try:
        takes.bind(dim=1, num_features=1)
    except TypeError:
        return str(takes)
    return None


def has_size(estimator: str, dim: int, num_features: int) -> bool:
    """Whether there is such a map: one that is made already has one size."""
    value = load_named(estimator) if is_own(estimator) else None
    return not isinstance(value, FeatureMap) or value.num_features_of(dim) == num_features


def make_map(kernel: Kernel, data: Float64, num_features: int, estimator: str, projection: str) -> FeatureMap:
    """Return a map for such rows, (n, d): kernattn's, or one's own, which is tried on two of them."""
    dim = data.shape[1]
    if not is_own(estimator):
        return random_features(kernel, dim, num_features, estimator, projection, data=data, rng=0)
    value: Any = load_named(estimator)
    phi: Any = value if isinstance(value, FeatureMap) else value(dim=dim, num_features=num_features)
    if not isinstance(phi, FeatureMap):
        raise ParameterError(f"{estimator} must return a feature map; got {shown(phi)}")
    if phi.dim not in (None, dim):
        raise ShapeError(f"{estimator} takes rows of {phi.dim} columns; the tokens have {dim}")
    for side in (phi.query, phi.key):
        features = np.asarray(side(data[:2]))
        if features.shape != (2, num_features):
            raise ShapeError(f"{estimator} must give {num_features} features a row; 2 rows got {features.shape}")
    return phi


def find_settled(phi: FeatureMap, x: Float64, y: Float64, redraws: int) -> NDArray[np.bool_]:
    """Return the answer of `where_settled`; nothing is settled of a map whose tails are not known."""
    try:
        return where_settled(phi, x, y, redraws)
    except NoClosedForm:
        return np.zeros(len(x), bool)
