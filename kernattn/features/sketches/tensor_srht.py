"""TensorSRHT: products of randomised Hadamard transforms, of which each feature reads one row a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Host
from kernattn.features.polynomial_inputs import PairSums, width
from kernattn.features.sketches.product_sketch import ProductSketch
from kernattn.features.sketches.weights import random_signs
from kernattn.kernels import Polynomial

__all__ = ["TensorSRHT"]


@final
@dataclass(frozen=True, eq=False)
class TensorSRHT(ProductSketch):
    r"""TensorSRHT: the weights are rows of :math:`H \Delta`, H the Hadamard matrix and :math:`\Delta` random signs.

    Ahle et al. (2020); rows are read without replacement (Wacker, Kanagawa and Filippone 2022). Inputs are padded with
    zeros to a power of two, n; every block of up to n features has signs and an order of rows of its own in each of
    the p factors. One feature has the moments of the Rademacher sketch, :math:`V = N + 2(a - s)`; two of a block have
    :math:`E\,t t' = a - (V - a) / (n - 1)` a factor, below a, so for odd degrees the variance falls below the
    Rademacher one, to 0 at degree 1 and M a multiple of n.
    """

    @property
    def design(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def sample(cls, kernel: Polynomial, dim: int, num_features: int, rng: np.random.Generator) -> Self:
        """Draw a map."""
        columns = width(kernel, dim)
        omega = np.stack([_factor(num_features, columns, rng) for _ in range(kernel.degree)])
        omega.setflags(write=False)
        return cls(kernel, omega)

    @property
    def bounded(self) -> bool:
        """True."""
        return True

    @property
    def block(self) -> int:
        """The order of the Hadamard matrix."""
        return _padded(self.width)

    def factor_moments(self, pair: PairSums) -> tuple[Host, Host]:
        """Return E t^2 and E t t' of t = (w.x)(w.y), for two rows w, w' of one block."""
        second = pair.norms + 2 * (pair.square - pair.shared)
        return second, pair.square - (second - pair.square) / max(self.block - 1, 1)


def _padded(columns: int) -> int:
    """Return the least power of two that is not below `columns`."""
    return 1 << (columns - 1).bit_length()


def _factor(count: int, columns: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Return the weights of one factor, (count, columns)."""
    size = _padded(columns)
    blocks = []
    for start in range(0, count, size):
        rows = rng.permutation(size)[: count - start]
        hadamard = 1 - 2 * (np.bitwise_count(rows[:, None] & np.arange(columns)) % 2).astype(np.int8)
        blocks.append(hadamard * random_signs(rng, columns))
    return np.concatenate(blocks)
