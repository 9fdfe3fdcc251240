"""The Nystrom feature map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log, log2
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import check_csr, is_sparse
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    check_floating,
    constant,
    dtype_name,
    namespace,
    placement,
    to_numpy64,
    widest,
    without_flags,
    zeros,
)
from kernattn._arrays.shapes import strips
from kernattn._arrays.trees import add, leaves, map_leaves
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import finite_number, host_array, host_form, instance_of, positive_integer, shown
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG, generator
from kernattn._sums.units import balance, multiply_out
from kernattn.errors import EmptyInputError, NoClosedForm, ParameterError, ShapeError
from kernattn.features._base.map import FeatureMap
from kernattn.features._data import checked_csr
from kernattn.features._moments.pairs import bias_of
from kernattn.features._nystrom.gram import BLOCK
from kernattn.kernels import Kernel
from kernattn.kernels._pullbacks import has_pullback, pull_all
from kernattn.ops.features import OP

MODERATE = 64  # octaves of a root that float32 holds beside smaller ones


@final
@dataclass(frozen=True, eq=False, repr=False)
class Nystrom(FeatureMap):
    r"""Nystrom features: :math:`\phi(x) = K_{LL}^{-1/2} k(L, x)` for landmarks L; see `kernattn.features.nystrom`.

    The matrix is kept as its eigenvalues and eigenvectors. Directions whose eigenvalue is below `cutoff` times the
    largest one, or below ten times the epsilon of kernel values, count as null: their inverse root is 0. Values are
    computed in float64 from rows of every dtype (in JAX without x64, float32), as the inverse root makes rounding
    large, and so are gradients. Where they are given, the epsilon is that of float64 or float32.

    Attributes
    ----------
    kernel : Kernel or None
        The kernel; None where rows of kernel matrices are given instead of inputs.
    landmarks : (m, d) numpy.ndarray or None
        The landmarks, float64.
    indices : (m,) numpy.ndarray or None
        Which rows of the data the landmarks are; None where they are no rows of it.
    residual : float or None
        The relative trace error :math:`\mathrm{tr}(K - K') / \mathrm{tr}\,K` on the data, where the choice of
        landmarks knows it; `trace_residual` computes it for any data.
    """

    kernel: Kernel | None
    landmarks: Float64 | None
    indices: NDArray[np.int64] | None
    rows: int  # of the data
    eigenvalues: Float64  # (m,), ascending
    eigenvectors: Float64  # (m, m)
    cutoff: float
    residual: float | None

    def __post_init__(self) -> None:
        host_form("eigenvalues", self.eigenvalues, ("m",))
        if not np.isfinite(self.eigenvalues).all():
            raise ParameterError("eigenvalues must be finite numbers; got infinity or NaN")
        m, rows = len(self.eigenvalues), positive_integer("rows", self.rows)
        host_array("eigenvectors", self.eigenvectors, (m, m))
        if self.kernel is None or self.indices is not None:
            host_array("indices", self.indices, (m,), ("int64",))
            if np.min(self.indices) < 0 or np.max(self.indices) >= rows:  # type: ignore[arg-type]
                raise ParameterError(f"indices must be rows of the data, from 0 to {rows - 1}")
        if self.kernel is None and self.landmarks is not None:
            raise ParameterError("landmarks must be None where rows of kernel matrices are given")
        if self.kernel is not None:
            instance_of("kernel", self.kernel, Kernel)
            host_array("landmarks", self.landmarks, (m, "d"))
            self.kernel.diag(self.landmarks)  # of another dimension or domain, they are refused here
        if not 0 <= finite_number("cutoff", self.cutoff) < 1:
            raise ParameterError(f"cutoff must be in [0, 1); got {self.cutoff}")
        if self.residual is not None:
            finite_number("residual", self.residual)

    @property
    def dim(self) -> int:
        """Input dimension d; the number of rows of data where rows of kernel matrices are given."""
        return self.rows if self.landmarks is None else int(self.landmarks.shape[1])

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return len(self.eigenvalues)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), with a log scale per row that takes up a kernel beyond the dtype."""
        xp = namespace(x=x)
        values, log_scale = self._product(x)
        dtype = accumulation_dtype(xp, x)
        return ScaledFeatures(*(xp.astype(part, dtype, copy=False) for part in (values, log_scale)))

    @without_flags
    def trace_residual(self, data: Array) -> float:
        r"""Return the relative trace error :math:`\sum_i [k(x_i, x_i) - |\phi(x_i)|^2] / \sum_i k(x_i, x_i)`.

        It is 0 where the features lose nothing of the rows (n, d) of data, 1 where they lose all. A map that was made
        from a kernel matrix takes the matrix. Raise ParameterError if the kernel is 0 on all of the data.
        """
        if is_sparse(data):
            check_csr("data", data, self.dim)
        else:
            self._check(data, "data")
        if data.ndim != 2 or (self.kernel is None and data.shape[0] != self.rows):
            wanted = f"the kernel matrix ({self.rows}, {self.rows})" if self.kernel is None else f"(n, d = {self.dim})"
            raise ShapeError(f"data must be {wanted}; got shape {tuple(data.shape)}")
        values = checked_csr(data) if is_sparse(data) else to_numpy64(data)
        trace = float(np.sum(values.diagonal() if self.kernel is None else self.kernel.diag(values)))
        if not trace > 0:
            raise ParameterError(f"the trace of the kernel matrix of data must be positive; got {trace}")
        energy = sum(float(np.sum(self(values[here]) ** 2)) for here in strips(values.shape[0], BLOCK))
        return 1.0 - energy / trace

    def _mean(self, x: Float64, y: Float64) -> Float64:
        raise NoClosedForm(_WHY.format("mean"))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        """Return phi(x).phi(y) - k(x, y) of these very landmarks."""
        if self.kernel is None:
            raise NoClosedForm("a map of a precomputed kernel knows no k(x, y) to subtract")
        one, other = (self._product(rows[..., None, :]) for rows in (x, y))
        product = np.sum(one.values * other.values, axis=-1, keepdims=True)
        mean = multiply_out(ScaledFeatures(product, one.log_scale + other.log_scale), x)[..., 0, 0]
        return bias_of(mean, self.kernel.pairs(x, y))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        raise NoClosedForm(_WHY.format("variance"))

    def redraw(self, rng: RNG = None) -> Self:
        """Return the map itself: other landmarks need the data, and `kernattn.features.nystrom`."""
        generator(rng)
        return self

    def _features(self, x: Array, key: bool, backend: str | None) -> Array:
        if self.kernel is None and getattr(x, "ndim", 0) >= 2 and x.shape[-1] == len(self.eigenvalues):
            check_floating("x", x)
            if 0 in x.shape:
                raise EmptyInputError(f"x must not be empty; got shape {tuple(x.shape)}")
        elif self.kernel is None and getattr(x, "ndim", 0) >= 2 and x.shape[-1] != self.rows:
            raise ShapeError(
                f"x must hold rows of the kernel with the {len(self.eigenvalues)} landmarks or with all "
                f"{self.rows} rows of the data; got shape {tuple(x.shape)}"
            )
        else:
            self._check(x)
        OP.choose(x, backend)
        return multiply_out(self._product(x), x, own=True)

    def _project(self, x: Array, matrix: Float64, backend: str | None) -> Array:
        """Return phi(x) matrix: of few columns, each costs a product with kernel values, not with the root as well."""
        if not isinstance(x, np.ndarray) or self.kernel is None or 2 * matrix.shape[1] > len(matrix):
            return super()._project(x, matrix, backend)
        self._check(x)
        return multiply_out(self._product(x, matrix), x, own=True)

    def _product(self, x: Array, matrix: Float64 | None = None) -> ScaledFeatures:
        """Return the features of rows (..., n, d), or their product with a matrix, in the widest dtype beside them."""
        xp = namespace(x=x)
        held = self.kernel is None and dtype_name(x) != "float64"
        x = xp.astype(x, widest(xp, x), copy=False)
        host_root, log_root = self._root("float32" if held else dtype_name(x))
        host_root = host_root if matrix is None else host_root @ matrix
        root = constant(xp, host_root, x.dtype, x)
        if self.kernel is not None:
            assert self.landmarks is not None
            of_kernel = self.kernel._log_scaled_matrix(x, constant(xp, self.landmarks, x.dtype, x))
            values, unit = balance(ScaledFeatures(*of_kernel))
            return ScaledFeatures(xp.matmul(values, root), unit + log_root)
        if x.shape[-1] != len(self.eigenvalues):
            x = xp.take(x, xp.asarray(np.array(self.indices), **placement(x)), axis=-1)
        values, unit = balance(ScaledFeatures(x, zeros(xp, (*x.shape[:-1], 1), x.dtype, x)))
        return ScaledFeatures(xp.matmul(values, root), unit + log_root)

    def _pullback(self, x: Array) -> Callable[[Array], tuple[Array, Any]]:
        kernel, landmarks = self.kernel, self.landmarks
        if kernel is None or not has_pullback(kernel):
            raise ParameterError(f"phi must be a map of a kernel that has a pullback; got {shown(kernel)}")
        xp = namespace(x=x)
        rows = xp.astype(x, widest(xp, x), copy=False)  # as `_product` takes them: the same root
        host, log = self._root(dtype_name(rows))
        root, points = (constant(xp, a, rows.dtype, rows) for a in (host * np.exp(log), np.asarray(landmarks)))

        def pull_back(g: Array) -> tuple[Array, Any]:
            g = xp.astype(g, rows.dtype, copy=False)
            dx, _, lengthscales = pull_all(kernel, rows, points, xp.matmul(g, root))
            dx = xp.astype(dx, x.dtype, copy=False)
            if all(leaf is None for leaf in leaves(lengthscales)):
                return dx, lengthscales
            of_root = to_numpy64(xp.matmul(xp.matrix_transpose(kernel(rows, points)), g))
            of_matrix = constant(xp, self._of_matrix(of_root, dtype_name(rows)), rows.dtype, rows)
            total = add(lengthscales, pull_all(kernel, points, points, of_matrix)[2])
            return dx, map_leaves(lambda leaf: xp.astype(leaf, x.dtype, copy=False), total)

        return pull_back

    def _of_kernel(self, kernel: Kernel) -> Self:
        """Return the map of the same landmarks with another kernel."""
        values, vectors = np.linalg.eigh(kernel(self.landmarks))
        return replace(self, kernel=kernel, eigenvalues=values, eigenvectors=vectors, residual=None)

    def _of_matrix(self, of_root: Float64, dtype: str) -> Float64:
        r"""Return the cotangent of the landmarks' matrix from that of its inverse root.

        In its eigenvectors entries are multiplied by :math:`-1 / (a b (a + b))`, a and b the roots of eigenvalues, and
        by :math:`1 / (a (a^2 - b^2))` of a kept direction and a null one (Higham 2008, theorem 3.11).
        """
        kept = self._find_resolved(dtype)
        values, vectors = np.where(kept, self.eigenvalues, 0.0), self.eigenvectors
        roots = np.sqrt(np.where(kept, values, 1.0))
        a, b = roots[:, None], roots
        both, one = kept[:, None] & kept, kept[:, None] & ~kept
        apart = np.where(one, self.eigenvalues[:, None] - self.eigenvalues, 1.0)
        factors = np.where(both, -1 / (a * b * (a + b)), np.where(one, 1 / (a * apart), 0.0))
        factors = np.where(one.T, factors.T, factors)
        inner = vectors.T @ of_root @ vectors
        gradient: Float64 = vectors @ (factors * (inner + inner.T) / 2) @ vectors.T
        return gradient

    def _find_resolved(self, dtype: str) -> NDArray[np.bool_]:
        """Return which directions the dtype resolves, (m,)."""
        largest = max(self.eigenvalues[-1], 0.0)
        kept: NDArray[np.bool_] = self.eigenvalues > max(self.cutoff, 10 * float(np.finfo(dtype).eps)) * largest
        return kept

    @lazy
    def _roots(self) -> dict[str, tuple[Float64, float]]:
        return {}

    def _root(self, dtype: str) -> tuple[Float64, float]:
        """Return the inverse square root of the landmarks' matrix, of what the dtype resolves, and a log scale."""
        if dtype not in self._roots:
            largest = max(self.eigenvalues[-1], 0.0)
            kept = self._find_resolved(dtype)
            octaves = round(log2(largest) / 2) if largest > 0 else 0
            octaves = octaves if abs(octaves) > MODERATE else 0
            vectors, roots = self.eigenvectors[:, kept], self.eigenvalues[kept] ** -0.5 * 2.0**octaves
            self._roots[dtype] = (vectors * roots) @ vectors.T, -octaves * log(2)
        return self._roots[dtype]


_WHY = (
    "no closed form is known for the {} of a Nystrom map over draws of landmarks; given its landmarks the map is "
    "deterministic, and bias(x, y) is its exact error"
)
