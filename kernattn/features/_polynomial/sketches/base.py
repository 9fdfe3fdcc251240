"""What the sketches of polynomial kernels share: inputs dense or CSR, blocks of rows, and moments."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np

from kernattn._arrays.csr import check_csr, is_sparse
from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, anywhere, dtype_name, namespace
from kernattn._arrays.shapes import strips
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of
from kernattn._runtime.random import RNG, generator
from kernattn._sums.limits import ENDS
from kernattn._sums.units import multiply_out, shift_octaves
from kernattn.errors import ShapeError
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms
from kernattn.features._polynomial.inputs import PairSums, augment, augment_csr, pair_sums, unit_rows
from kernattn.kernels import Polynomial
from kernattn.ops.dispatch import Op
from kernattn.ops.features import OP


@dataclass(frozen=True, eq=False, repr=False)
class PolynomialSketch(FeatureMap):
    r"""A random map with :math:`E\,\phi(x)^T \phi(y) = (\gamma x^T y + c)^p`; see `kernattn.random_features`.

    Rows come as arrays of any library, or as a SciPy CSR matrix, which is never made dense as a whole: its features are
    a NumPy array.
    """

    kernel: Polynomial

    _op: ClassVar[Op] = OP  # its backends are those of the map
    _step: ClassVar[int] = 1  # features of a product
    _block_rows: ClassVar[int | None] = 1024  # NumPy rows done at once; None where the op sees to that

    def __post_init__(self) -> None:
        instance_of("kernel", self.kernel, Polynomial)
        self._check_draw()
        if self.dim < 1:
            raise ShapeError(f"rows must have a column beside the kernel's constant; got width {self._width}")

    @abstractmethod
    def _check_draw(self) -> None:
        """Raise unless the random numbers are such as `sample` draws for the kernel: loops index by them."""

    @property
    @abstractmethod
    def _width(self) -> int:
        """Length of a row with the kernel's constant appended."""

    @abstractmethod
    def _product(self, x: Any, backend: str | None) -> Array:
        """Return the features of augmented rows (..., n, width), dense or CSR, in their dtype."""

    def _round_to(self, x: Array, backend: str | None, dtype: Any) -> Array:
        """Return these features of dense rows in another dtype."""
        features = self._product(x, backend)
        return namespace(features=features).astype(features, dtype, copy=False)

    @abstractmethod
    def _pair_variance(self, pair: PairSums, num_features: int) -> Float64:
        """Return the variance of the estimate of such a map of so many features, for pairs with these sums."""

    @property
    def _block(self) -> int:
        """Size of a whole set of features that depend on each other, beyond which more features are always better."""
        return 1

    @property
    def _is_bounded(self) -> bool:
        """Whether no factor of a feature exceeds the sum of the row's magnitudes, and blocks are independent."""
        return False

    @classmethod
    @abstractmethod
    def _sample(cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator) -> Self:
        """Draw a map of so many products."""

    @property
    def _design(self) -> dict[str, Any]:
        """What `_sample` takes beyond the kernel and the sizes."""
        return {}

    @final
    @property
    def dim(self) -> int:
        return self._width - (self.kernel.coef0 > 0)

    @final
    def redraw(self, rng: RNG = None) -> Self:
        number = self.num_features_of(self.dim) // self._step
        return self._sample(self.kernel, number, self.dim, generator(rng), **self._design)

    @final
    def scaled_query(self, x: Array) -> ScaledFeatures:
        return self._compute_scaled(x, None)

    def _compute_scaled(self, x: Array, backend: str | None) -> ScaledFeatures:
        rows, log_size = unit_rows(self.kernel, x)
        return ScaledFeatures(self._product(rows, backend), self.kernel.degree * log_size)

    @final
    def _mean(self, x: Float64, y: Float64) -> Float64:
        pair, octaves = pair_sums(self.kernel, x, y)
        mean: Float64 = shift_octaves(np, pair.dot**self.kernel.degree, self.kernel.degree * octaves)
        return mean

    @final
    def _bias(self, x: Float64, y: Float64) -> Float64:
        """Return zeros: sketches are unbiased."""
        return np.zeros_like(pair_sums(self.kernel, x, y)[0].dot)

    @final
    def _variance(self, x: Float64, y: Float64) -> Float64:
        pair, octaves = pair_sums(self.kernel, x, y)
        variance = np.maximum(self._pair_variance(pair, self.num_features_of(self.dim)), 0.0)
        moved: Float64 = shift_octaves(np, variance, 2 * self.kernel.degree * octaves)
        return moved

    @final
    def _terms(self, x: Float64, y: Float64) -> Terms:
        (pair, octaves), p = pair_sums(self.kernel, x, y), self.kernel.degree
        return Terms(
            number=self.num_features_of(self.dim),
            features=lambda m: m,
            kernel=shift_octaves(np, pair.dot**p, p * octaves),
            bias=lambda m: np.zeros_like(pair.dot),
            variance=lambda m: shift_octaves(np, self._pair_variance(pair, m), 2 * p * octaves),
            size=shift_octaves(np, pair.largest**p, p * octaves) if self._is_bounded else None,
            block=self._block,
            part=lambda rest: rest % self._step == 0,
        )

    _takes_csr = True

    @final
    def _features(self, x: Any, key: bool, backend: str | None) -> Array:
        dense = not is_sparse(x)
        if dense:
            self._check(x)
        else:
            check_csr("x", x, self.dim)
        self._op.choose(x if dense else x.data, backend)
        if self._block_rows is None or (dense and not isinstance(x, np.ndarray)):
            return self._of_rows(x, backend)
        rows = x.reshape(-1, self.dim) if dense else x
        out = np.empty((rows.shape[0], self.num_features_of(self.dim)), x.dtype)
        for here in strips(len(out), self._block_rows):
            out[here] = self._of_rows(rows[here], backend)
        return out.reshape(*x.shape[:-1], -1)

    def _of_rows(self, x: Any, backend: str | None) -> Array:
        if is_sparse(x):
            return self._product(augment_csr(self.kernel, x), backend)
        xp = namespace(x=x)
        rows = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        limit = ENDS[dtype_name(rows)].held ** (1 / self.kernel.degree) / self._width
        if anywhere(xp.isfinite(rows) & (xp.abs(rows) > limit / max(1.0, self.kernel.gamma))):
            return multiply_out(self._compute_scaled(x, backend), x)
        return self._round_to(augment(self.kernel, rows), backend, x.dtype)
