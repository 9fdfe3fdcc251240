"""The exact feature map of the homogeneous polynomial kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import final

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array, Host, accumulation_dtype, constant, namespace, placement, zeros
from kernattn._check import positive_integer
from kernattn.features.exact import ExactMap
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Polynomial", "polynomial"]


@final
@dataclass(frozen=True, eq=False)
class Polynomial(ExactMap):
    r"""All monomials of one degree, each once, weighted so that :math:`\phi(x)^T \phi(y) = (x^T y)^p`."""

    degree: int

    @property
    def dim(self) -> None:
        """Any input dimension is taken."""
        return None

    @property
    def spec(self) -> MapSpec | None:
        """None: the ops take the map as computed features."""
        return None

    def features_of(self, dim: int) -> int:
        """Return M, the number of monomials in `dim` variables."""
        return comb(dim + self.degree - 1, self.degree)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), with a log scale of 0."""
        xp = namespace(x=x)
        dtype = accumulation_dtype(xp, x)
        x = xp.astype(x, dtype, copy=False)
        factors, weights = _monomials(x.shape[-1], self.degree)
        values = constant(xp, weights, dtype, x)
        for column in factors:
            values = values * xp.take(x, xp.asarray(column, **placement(x)), axis=-1)  # (..., n, M)
        return ScaledFeatures(values, zeros(xp, (*x.shape[:-1], 1), dtype, x))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), with a log scale of 0."""
        return self.scaled_query(x)


@cache
def _monomials(dim: int, degree: int) -> tuple[NDArray[np.int64], Host]:
    """Return the factors of each monomial, (p, M), and the square roots of the multinomial coefficients, (M,)."""
    factors = np.array(list(combinations_with_replacement(range(dim), degree)), dtype=np.int64)
    repeats = (np.unique(row, return_counts=True)[1] for row in factors)
    weights = [factorial(degree) / prod(factorial(int(c)) for c in counts) for counts in repeats]
    return np.ascontiguousarray(factors.T), np.sqrt(np.array(weights))


def polynomial(degree: int = 2) -> Polynomial:
    r"""Return the exact map of :math:`k(x, y) = (x^T y)^p`.

    Its features are :math:`\sqrt{p! / \prod_i a_i!} \prod_i x_i^{a_i}` over the multi-indices with
    :math:`\sum_i a_i = p`: the symmetric half of the p-fold outer product, :math:`M = \binom{d + p - 1}{p}` instead of
    :math:`d^p`.

    Parameters
    ----------
    degree : int
        The power p, at least 1.

    Returns
    -------
    Polynomial
        The map; it takes any dimension d.

    Raises
    ------
    ParameterError
        If degree is no positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    >>> phi = ka.features.polynomial(2)
    >>> phi(x).shape, (phi(x) @ phi(y).T).round(12), (x @ y.T) ** 2
    ((1, 3), array([[1.]]), array([[1.]]))
    """
    return Polynomial(positive_integer("degree", degree))
