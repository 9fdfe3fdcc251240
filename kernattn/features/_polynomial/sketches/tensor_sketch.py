"""TensorSketch: the count sketch of the p-fold outer product, by Fourier transforms of p count sketches."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import numbers_of
from kernattn._arrays.namespaces import Array, Float64, frozen
from kernattn._runtime.checks import host_array, positive_integer
from kernattn._runtime.lazy import lazy
from kernattn.errors import ParameterError
from kernattn.features._polynomial.inputs import PairSums, width
from kernattn.features._polynomial.sketches.base import PolynomialSketch
from kernattn.features._polynomial.sketches.weights import check_signs, random_signs
from kernattn.kernels import Polynomial
from kernattn.ops.dispatch import Op
from kernattn.ops.tensor_sketch import OP


@final
@dataclass(frozen=True, eq=False, repr=False)
class TensorSketch(PolynomialSketch):
    r"""TensorSketch: :math:`\phi(x) = F \prod_{i=1}^p \mathrm{FFT}(C_i \tilde x)`, C a count sketch of M buckets.

    Pham and Pagh (2013). F is orthogonal up to scale: it packs the real and imaginary parts of the spectrum's half
    into M real features. Their inner products are those of the inverse transform, which therefore is not taken.

    With :math:`a = (\tilde x^T \tilde y)^2`, :math:`N = |\tilde x|^2 |\tilde y|^2`,
    :math:`s = \sum_i \tilde x_i^2 \tilde y_i^2` and g = gcd(2, M) the variance is, for hashes and signs that are
    independent for every coordinate,

    .. math:: \begin{aligned}
              &\frac{(N + a - s)^p + (2a - s)^p - 2 a^p}{M} \\
              &+ \frac{g}{M^2} \left[(N + 2a - 2s)^p - (N + a - s)^p - (2a - s)^p + a^p\right].
              \end{aligned}
    """

    index: NDArray[np.int64]  # (p, width), the bucket of each coordinate
    sign: NDArray[np.int8]  # (p, width)
    buckets: int

    _op: ClassVar[Op] = OP
    _block_rows: ClassVar[int | None] = None
    _block = 2  # more buckets are better among even numbers, and among odd ones

    def _check_draw(self) -> None:
        """Raise unless every coordinate has a bucket and a sign."""
        positive_integer("buckets", self.buckets)
        host_array("index", self.index, (self.kernel.degree, "width"), ("int64",))
        check_signs("sign", self.sign, self.index.shape)
        if self.index.min() < 0 or self.index.max() >= self.buckets:
            raise ParameterError(f"index must hold buckets, from 0 to {self.buckets - 1}")

    @property
    def _width(self) -> int:
        return int(self.index.shape[1])

    @lazy
    def _weight(self) -> Float64:
        """The signs in float64: one array for all calls, of which devices keep what they made."""
        return frozen(self.sign.astype(np.float64))

    @classmethod
    def _sample(cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator) -> Self:
        shape = (kernel.degree, width(kernel, dim))
        index = rng.integers(number, size=shape)
        index.setflags(write=False)
        return cls(kernel, index, random_signs(rng, *shape), number)

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return self.buckets

    def _product(self, x: Any, backend: str | None) -> Array:
        sketch = OP.implementation(numbers_of(x), backend)
        phi: Array = sketch(x, self.index, self._weight, self.buckets)
        return phi

    def _round_to(self, x: Array, backend: str | None, dtype: Any) -> Array:
        phi: Array = OP.implementation(x, backend)(x, self.index, self._weight, self.buckets, dtype)
        return phi

    def _pair_variance(self, pair: PairSums, num_features: int) -> Float64:
        p, m = self.kernel.degree, num_features
        square, cross = pair.square**p, (pair.norms + pair.square - pair.shared) ** p
        swapped = (2 * pair.square - pair.shared) ** p
        both = (pair.norms + 2 * (pair.square - pair.shared)) ** p
        variance: Float64 = (cross + swapped - 2 * square) / m + (both - cross - swapped + square) * (gcd(2, m) / m**2)
        return variance
