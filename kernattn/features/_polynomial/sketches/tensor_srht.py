"""TensorSRHT: products of randomised Hadamard transforms, of which each feature reads one row a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import ROOM, is_sparse, numbers_of
from kernattn._arrays.namespaces import Array, Float64, constant, frozen, namespace
from kernattn._maps.chains import Chains
from kernattn._maps.walsh import next_power_of_two
from kernattn._runtime.checks import check_room, host_array, positive_integer
from kernattn._runtime.lazy import lazy
from kernattn.errors import ParameterError
from kernattn.features._polynomial.inputs import PairSums, width
from kernattn.features._polynomial.sketches.base import PolynomialSketch
from kernattn.features._polynomial.sketches.product_sketch import product_variance
from kernattn.features._polynomial.sketches.weights import check_signs, multiply_projections, random_signs
from kernattn.kernels import Polynomial
from kernattn.ops.dispatch import Op
from kernattn.ops.hadamard import OP

FASTER_ABOVE = {"cpu": 96, "gpu": 256, "reference": 128}
"""Length of a row above which transforms are faster than products with the weights.

`kernattn bench --cases tensor-srht`, on one thread and with a `--dim` of 64, 128 or more, races the transforms of Numba
and of the reference against the products. On a GPU nothing was timed: the bound is that of the op `hadamard`.
"""


@final
@dataclass(frozen=True, eq=False, repr=False)
class TensorSRHT(PolynomialSketch):
    r"""TensorSRHT: :math:`\phi(x)_a = M^{-1/2} \prod_{i=1}^p (H \Delta_i \tilde x)_{r_{ia}}`, H the Hadamard matrix of
    entries 1 and -1, :math:`\Delta_i` random signs.

    Ahle et al. (2020); rows are read without replacement (Wacker, Kanagawa and Filippone 2022). Inputs are padded with
    zeros to a power of two, n; every block of up to n features has signs and an order of rows of its own in each of
    the p factors. One feature has the moments of the Rademacher sketch, :math:`V = N + 2(a - s)`; two of a block have
    :math:`E\,t t' = a - (V - a) / (n - 1)` a factor, below a, so for odd degrees the variance falls below the
    Rademacher one, to 0 at degree 1 and M a multiple of n.

    Long rows go through the op `hadamard`, in :math:`p (n \log n + M)` operations each; the rows of a CSR matrix are
    then made dense a block at a time. Short ones are multiplied by the weights that the rows of :math:`H \Delta_i` are.
    """

    signs: NDArray[np.int8]  # (p, blocks, width)
    rows: NDArray[np.int64]  # (p, M), r block by block

    _op: ClassVar[Op] = OP
    _block_rows: ClassVar[int | None] = 128
    _is_bounded = True

    def _check_draw(self) -> None:
        """Raise unless every block has its signs, and every feature a row of its block's own."""
        host_array("rows", self.rows, (self.kernel.degree, "M"), ("int64",))
        check_signs("signs", self.signs, (self.kernel.degree, "blocks", "width"))
        check_signs("signs", self.signs, (self.kernel.degree, -(-self.rows.shape[1] // self._block), "width"))
        if self.rows.min() < 0 or self.rows.max() >= self._block:
            raise ParameterError(f"rows must be those of a transform of order {self._block}")
        places = np.sort(self.rows + np.arange(self.rows.shape[1]) // self._block * self._block, axis=1)
        if (places[:, 1:] == places[:, :-1]).any():
            raise ParameterError("rows must be read once in each block")

    @property
    def _width(self) -> int:
        return int(self.signs.shape[2])

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return int(self.rows.shape[1])

    @lazy
    def omega(self) -> NDArray[np.int8]:
        """The weights, (p, M, width)."""
        entries = 1 - 2 * (np.bitwise_count(self.rows[..., None] & np.arange(self._width)) % 2).astype(np.int8)
        omega: NDArray[np.int8] = entries * self.signs[:, np.arange(self.rows.shape[1]) // self._block]
        omega.setflags(write=False)
        return omega

    @lazy
    def _factors(self) -> list[tuple[Chains, NDArray[np.int64]]]:
        """Blocks of transforms, and which of their results the features read: one pair a factor."""
        count, n = self.rows.shape[1], self._block
        first = np.arange(count) // n * n
        factors = []
        for i, (signs, rows) in enumerate(zip(self.signs, self.rows, strict=True)):
            diagonals = np.pad(signs.astype(np.float64), ((0, 0), (0, n - self._width)), constant_values=1.0)
            norm = n**0.5 * (count**-0.5 if i == 0 else 1.0)
            norms = np.full(len(signs) * n, norm)
            factors.append((Chains(frozen(diagonals[:, None]), frozen(norms), self._width), first + rows))
        return factors

    @classmethod
    def _sample(cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator) -> Self:
        columns = width(kernel, dim)
        n = next_power_of_two(columns)
        blocks = -(-number // n)
        check_room("rows", (kernel.degree, number))
        signs = np.empty((kernel.degree, blocks, columns), np.int8)
        rows = np.empty((kernel.degree, blocks, n), np.int64)
        for i in range(kernel.degree):
            for j in range(blocks):
                rows[i, j], signs[i, j] = rng.permutation(n), random_signs(rng, columns)
        rows = rows.reshape(kernel.degree, -1)[:, :number].copy()
        signs.setflags(write=False)
        rows.setflags(write=False)
        return cls(kernel, signs, rows)

    def _product(self, x: Any, backend: str | None) -> Array:
        backend = OP.choose(numbers_of(x), backend)
        if self._width <= FASTER_ABOVE[backend]:
            return multiply_projections(x, self.omega)
        if is_sparse(x):
            few = max(16, ROOM // self._block)  # 16 rows go through the transform at once
            blocks = (x[start : start + few].toarray() for start in range(0, x.shape[0], few))
            return np.concatenate([self._product(rows, backend) for rows in blocks])
        xp, transform = namespace(x=x), OP.implementation(x, backend)
        phi: Array = None
        for chains, places in self._factors:
            u = xp.take(transform(x, chains), constant(xp, places, xp.int32, x), axis=-1)
            phi = u if phi is None else phi * u
        return phi

    def _pair_variance(self, pair: PairSums, num_features: int) -> Float64:
        second = pair.norms + 2 * (pair.square - pair.shared)
        cross = pair.square - (second - pair.square) / max(self._block - 1, 1)
        return product_variance(self.kernel.degree, pair.square, second, cross, num_features, self._block)

    @property
    def _block(self) -> int:
        """The order n of the Hadamard matrix."""
        return next_power_of_two(self._width)
