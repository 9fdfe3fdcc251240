"""A map of rows times a matrix: of kernels under a learned metric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, constant, frozen, namespace, widest
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import array_of, host_array, instance_of, positive_integer, shown
from kernattn._runtime.random import RNG
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap, check_number
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.tails import Tails


@final
@dataclass(frozen=True, eq=False, repr=False)
class Transformed(FeatureMap):
    r"""A map of rows times a matrix, :math:`\phi(x) = \phi_0(x A)`.

    Where :math:`\phi_0` is of a kernel of :math:`|x - y| / \ell`, it is of the kernel of
    :math:`((x - y)\, A A^T (x - y)^T)^{1/2} / \ell`: a lengthscale of every direction. `solvers.learn_metric` finds
    one.

    Parameters
    ----------
    inner : FeatureMap
        The map :math:`\phi_0`, of rows of r numbers; one with a dimension for queries and another for keys is refused.
    matrix : (d, r) array_like
        The matrix A.

    Raises
    ------
    ParameterError
        If the matrix is none of finite numbers.
    ShapeError
        If the map does not take rows of r numbers.
    DTypeError
        If inner is no feature map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.Transformed(ka.features.polynomial(1), [[1.0], [-1.0]])
    >>> phi(np.array([[5.0, 3.0]]))
    array([[2.]])
    """

    inner: FeatureMap
    matrix: Float64  # (d, r)

    def __post_init__(self) -> None:
        instance_of("inner", self.inner, FeatureMap)
        given = array_of(self.matrix)
        if given.dtype.kind not in "iuf" or given.ndim != 2:
            raise ParameterError(f"matrix must be (d, r) finite numbers; got {shown(self.matrix)}")
        matrix = np.asarray(given, dtype=np.float64)
        host_array("matrix", matrix, ("d", "r"))
        for dim in (self.inner.query_dim, self.inner.key_dim):
            if dim not in (None, matrix.shape[1]):
                raise ShapeError(f"matrix must be (d, {dim}), as inner was drawn; got shape {matrix.shape}")
        check_number(self.inner, matrix.shape[1])
        object.__setattr__(self, "matrix", frozen(matrix))

    @property
    def dim(self) -> int:
        return len(self.matrix)

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return self.inner.num_features_of(self.matrix.shape[1])

    @property
    def _is_shared(self) -> bool:
        return self.inner._is_shared

    def _turn(self, x: Array, dtype: Any) -> Array:
        """Return x A, the rows (..., n, r) that the inner map takes."""
        xp = namespace(x=x)
        return xp.matmul(xp.astype(x, dtype, copy=False), constant(xp, self.matrix, dtype, x))

    def scaled_query(self, x: Array) -> ScaledFeatures:
        return self._scaled(x, False)

    def scaled_key(self, x: Array) -> ScaledFeatures:
        return self._scaled(x, True)

    def _scaled(self, x: Array, key: bool) -> ScaledFeatures:
        return self.inner._scaled_features(self._turn(x, accumulation_dtype(namespace(x=x), x)), key)

    def _compute(self, x: Array, key: bool) -> Array:
        """Return the features by the inner map's own loops."""
        xp, of = namespace(x=x), self.inner.key if key else self.inner.query
        return xp.astype(of(self._turn(x, widest(xp, x))), x.dtype, copy=False)

    def _project(self, x: Array, matrix: Float64, backend: str | None) -> Array:
        if is_sparse(x):
            return super()._project(x, matrix, backend)
        xp = namespace(x=x)
        return xp.astype(self.inner._project(self._turn(x, widest(xp, x)), matrix, backend), x.dtype, copy=False)

    def redraw(self, rng: RNG = None) -> Self:
        return replace(self, inner=self.inner.redraw(rng))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.inner.mean(x @ self.matrix, y @ self.matrix))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.inner.bias(x @ self.matrix, y @ self.matrix))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.inner.variance(x @ self.matrix, y @ self.matrix))

    def _terms(self, x: Float64, y: Float64) -> Terms:
        return self.inner._terms(x @ self.matrix, y @ self.matrix)

    def _tails(self, x: Float64, y: Float64) -> Tails:
        return self.inner._tails(x @ self.matrix, y @ self.matrix)
